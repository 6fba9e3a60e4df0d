"""The commands of the producer: jobs from the command line, and the service that keeps them going.

`python -m producer` has only these. What a command needs is imported when it is called, so that `--help` is quick.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from producer.cli import audit, look, page, tidy
from producer.cli.common_options import (
    JobName,
    JsonOption,
    LocalOption,
    NotifyOption,
    RunOption,
    StoreOption,
    WaitOption,
    WorkersOption,
    refuse_training_options,
    typed_fields,
    with_model_options,
)
from producer.cli.session import (
    end,
    folder_of,
    go_on,
    out,
    reachable_ledger,
    read_settings,
    screen_console,
    start_options,
    with_notify,
)
from shared import command, logs
from shared.errors import OptionError
from shared.specs.data import JobSpec
from shared.specs.run import ReleaseOptions
from shared.specs.training import TrainingOptions

# Modules without which no command works.
NEEDS: Final = ("celery", "lxml", "obstore", "prometheus_client", "pydantic_settings", "rapidfuzz", "redis")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="From a folder of Pascal-VOC photos to an int8 TFLite detector: submit jobs, watch them, keep them going.",
)


@app.command(name="submit")
@with_model_options
def submit_command(  # long: an option each
    context: typer.Context,
    dataset: Annotated[
        str | None,
        typer.Argument(help="Folder with images and Pascal-VOC XML (or s3://, gs://, az://), or a zip or tar of one."),
    ] = None,
    *,
    job: Annotated[str | None, typer.Option(help="The job's name; default: the folder's.")] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="The run's name. With --job and without a folder: train once more on its shards."),
    ] = None,
    store: StoreOption = None,
    local: LocalOption = False,
    workers: WorkersOption = 2,
    wait: WaitOption = False,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Train a detector; --no-train: make the shards only.")
    ] = True,
    notify: NotifyOption = None,
    spec: JobSpec,
    training: TrainingOptions,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop on any finding of lint.", rich_help_panel="Data")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON on standard output.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Make a job of a folder of photos: write its shards and, unless --no-train, train a detector.

    It first says what it is about to do. It asks only at a terminal, and only if a new job would run on this machine
    without --local because no broker is set.

    The options that people use most come first; the others are grouped by what they decide.

    Example: [bold]voc2tflite submit ~/photos --local --store out[/bold]

    Another training on the same shards: [bold]voc2tflite submit --job photos --run medium --model medium[/bold]

    Exit code 0: all is done (without --wait: accepted); 1: an error; 2: a wrong option; 3: the job failed; 4: it was
    cancelled.
    """
    from producer.cli.from_network import with_start_network
    from producer.cli.weights import stored_weights
    from producer.jobs.submit import Request
    from producer.run.start_job import start_job, start_run
    from shared.storage import Storage, data_folder

    if not train:
        refuse_training_options(context, run)
    settings = read_settings(store)
    typed, storage = typed_fields(context, JobSpec), Storage(settings.store)
    of_training = typed_fields(context, TrainingOptions)
    spec, training = with_start_network((spec, training), typed | of_training, storage)
    training = training.model_copy(update={"weights": stored_weights(training, storage)})
    confirm = go_on if sys.stdin.isatty() and not yes and not as_json else None
    options = with_notify(start_options(settings, local=local, wait=wait, workers=workers, confirm=confirm), notify)
    if dataset is not None:
        asked = training if train else None
        folder = folder_of(dataset, options)
        archive = None if folder == data_folder(dataset) else Path(dataset)
        named: dict[str, Any] = {"name": job, "run_name": run, "archive": archive}
        request = Request(dataset=folder, spec=spec, run=asked, strict=strict, typed=typed, **named)
        status = start_job(request, options)
    elif job is not None and run is not None:
        status = start_run(job, run, spec, training, options, typed)
    else:
        raise OptionError(
            "no folder: `submit FOLDER`, or `submit --job JOB --run NAME` to train once more on its shards"
        )
    end(status, options.settings, as_json=as_json, local=options.local)


@app.command()
@with_model_options
def resume(
    job: JobName,
    *,
    changes: ReleaseOptions,
    run: RunOption = None,
    store: StoreOption = None,
    local: LocalOption = False,
    workers: WorkersOption = 2,
    wait: WaitOption = False,
    notify: NotifyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue a job from what is in the store, even if Redis was emptied or its submitter is gone.

    Example: [bold]voc2tflite resume bccd --store out --wait[/bold]
    """
    from producer.run.start_job import resume_job

    options = with_notify(start_options(read_settings(store), local=local, wait=wait, workers=workers), notify)
    end(resume_job(job, options, changes, run), options.settings, as_json=as_json)


@app.command()
def cancel(job: JobName, run: RunOption = None, store: StoreOption = None) -> None:
    """Cancel a job and its training runs, or just one of them.

    Example: [bold]voc2tflite cancel bccd[/bold]
    """
    from producer.jobs import control
    from shared.storage import Storage

    settings = read_settings(store)
    out.print(control.cancel(Storage(settings.store), reachable_ledger(settings), job, run), soft_wrap=True)


@app.command()
@with_model_options
def retry(
    job: JobName,
    *,
    changes: ReleaseOptions,
    run: RunOption = None,
    store: StoreOption = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only redo what failed; a cancelled job stays cancelled.")
    ] = False,
    workers: WorkersOption = 2,
    wait: WaitOption = False,
    notify: NotifyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Redo the failed shards of a job and its failed run, and continue a cancelled one.

    Finished shards and models are checked against their checksums first; those that match are kept. Without a broker,
    this command does the work itself. If the export gate refused a model, it is exported and judged again without
    training; --max-drop, --quantize and --nms change how.

    Example: [bold]voc2tflite retry bccd --max-drop 3[/bold]
    """
    from producer.jobs import control
    from producer.run.start_job import continue_job
    from producer.state.local_lock import has_local_run
    from producer.state.stored import TERMINAL, ended_badly, load_job, stored_state
    from producer.terminal.progress import Screen
    from shared.storage import Storage

    options = with_notify(start_options(read_settings(store), local=False, wait=wait, workers=workers), notify)
    settings = options.settings
    storage, ledger = Storage(settings.store), reachable_ledger(settings)
    before = [] if run else ended_badly(storage, load_job(storage, job))
    with Screen(screen_console) as screen:
        told = control.retry(storage, ledger, job, run=run, only_failed=failed, changes=changes, progress=screen.stage)
    (screen_console if as_json else out).print(told, soft_wrap=True)
    seen = load_job(storage, job, run)
    still = ended_badly(storage, seen) if before else []
    taken_back = [asked for asked in before if asked not in still]
    is_open = bool(taken_back) or stored_state(storage, seen, settings.failed_share).state not in TERMINAL
    if is_open and options.local and has_local_run(storage, job):
        screen_console.print("a --local command is already working on this job, and goes on with it", soft_wrap=True)
    elif (is_open and options.local) or wait or as_json:
        end(continue_job(seen, options, taken_back), options.settings, as_json=as_json)


@app.command()
def acl(
    folder: Annotated[Path, typer.Argument(help="Folder to write: users.acl, and a password file for each user.")],
) -> None:
    """Make Redis users for producer, worker, trainer and monitoring, each with only the rights that it needs.

    Example: [bold]voc2tflite acl secrets && redis-server --aclfile secrets/users.acl[/bold]
    """
    from producer.redis_users import make_users

    file = make_users(folder)
    out.print(f"{file}: {shlex.join(['redis-server', '--aclfile', str(file)])}, and for each service", soft_wrap=True)
    password = shlex.quote(f"{folder}/USER_password")
    out.print(f"VOC_BROKER_URL=redis://USER@HOST VOC_BROKER_PASSWORD_FILE={password}", soft_wrap=True)


@app.command()
def serve(store: StoreOption = None) -> None:
    """Run the service that queues the work of all jobs and keeps them going. Run one; a second waits to take over.

    Example: [bold]VOC_BROKER_URL=redis://localhost voc2tflite serve[/bold]
    """
    from producer.run import service

    settings = read_settings(store)
    logs.set_up(settings.log_format, settings.log_level)
    service.serve(settings)


# Added here, so that the help lists them after `submit`, the command that people look for first.
app.add_typer(look.app)
app.add_typer(audit.app)
app.add_typer(tidy.app)
app.add_typer(page.app)


if __name__ == "__main__":
    command.run(app)
