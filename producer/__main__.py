"""`python -m producer` (or `producer`): jobs from the command line, and the service that keeps them going."""

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import ValidationError
from rich.console import Console

from producer import control, service, texts
from producer.doctor import examine
from producer.launch import Launch, go_on, launch, lint_pixels
from producer.lint import lint_folder
from producer.lint_csv import lint_rows
from producer.lint_report import lint_report
from producer.options import (
    BackgroundOption,
    JsonOption,
    RenameOption,
    ResizeOption,
    SizeOption,
    SplitOption,
    StoreOption,
    UnknownOption,
    WaitOption,
    renamed,
    shares,
    words,
)
from producer.settings import ProducerSettings
from producer.state import JobStatus, job_names, job_status, load_job
from producer.submit import Request
from producer.watch import Screen
from shared import faults, logs
from shared.errors import PipelineError
from shared.job import JobSpec, RunSpec
from shared.ledger import Ledger, connect
from shared.storage import Storage

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="From a folder of Pascal-VOC photos to an int8 TFLite detector: submit jobs, watch them, keep them going.",
)
screen_console = Console(stderr=True)
out = Console()

EXIT_ERROR, EXIT_USAGE, EXIT_FAILED, EXIT_CANCELLED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130

JobName = Annotated[str, typer.Argument(help="The job's name.")]


@app.command(name="submit")
def submit_command(  # the command line's options, each passed on by name
    dataset: Annotated[Path, typer.Argument(help="Folder with images and Pascal-VOC XML, in any usual layout.")],
    job: Annotated[str | None, typer.Option(help="The job's name; default: the folder's.")] = None,
    store: StoreOption = None,
    local: Annotated[bool, typer.Option("--local", help="Run everything here: broker, workers, trainer.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes with --local.")] = 2,
    image_size: SizeOption = 320,
    resize: ResizeOption = "stretch",
    split: SplitOption = "80/10/10",
    seed: Annotated[int, typer.Option(help="Seed of the split and of training.")] = 0,
    classes: Annotated[str | None, typer.Option(help="Only these classes, comma separated.")] = None,
    ignore_classes: Annotated[str, typer.Option(help="Leave these classes out, comma separated.")] = "",
    rename: RenameOption = None,
    unknown: UnknownOption = "error",
    difficult: Annotated[
        Literal["keep", "ignore", "drop"], typer.Option(help="Objects marked difficult: keep, ignore or drop.")
    ] = "keep",
    voc_coords: Annotated[
        Literal["corner", "voc1"], typer.Option(help="corner (LabelImg and most) or voc1 (devkit, 1-based).")
    ] = "corner",
    exif: Annotated[
        Literal["upright", "raw"], typer.Option(help="Where EXIF cannot be decided: boxes are upright or raw.")
    ] = "upright",
    background: BackgroundOption = "none",
    shard_images: Annotated[int, typer.Option(help="At most this many pictures a shard.")] = 256,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train and export a detector.")] = True,
    model: Annotated[Literal["nano", "small", "medium"], typer.Option(help="nano, small or medium.")] = "small",
    epochs: Annotated[int | None, typer.Option(help="Default: chosen by the size of the set.")] = None,
    max_minutes: Annotated[float, typer.Option(min=0, help="Bound of the training loop; 0: none.")] = 30,
    batch: Annotated[int, typer.Option(help="Pictures a step and replica.")] = 8,
    final: Annotated[bool, typer.Option("--final", help="Train on train + val.")] = False,
    max_drop: Annotated[float, typer.Option(help="Points of mAP50 that int8 may lose against float.")] = 1.0,
    strict: Annotated[bool, typer.Option("--strict", help="Stop on any finding of lint.")] = False,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a job of a folder of photos.

    Example: [bold]producer submit ~/photos --local --store out[/bold]

    Exit code 0: all that was asked is done (without --wait: accepted); 1: an error; 3: the job failed; 4: cancelled.
    """
    spec = JobSpec(
        image_size=image_size,
        resize=resize,
        split=shares(split),
        seed=seed,
        shard_images=shard_images,
        classes=tuple(words(classes)) if classes is not None else None,
        ignore_classes=tuple(words(ignore_classes)),
        rename=renamed(rename),
        unknown=unknown,
        difficult=difficult,
        voc_coords=voc_coords,
        exif=exif,
        background=background,
    )
    run = RunSpec(
        run="job",
        job="job",
        model=model,
        epochs=epochs,
        max_minutes=max_minutes or None,
        batch=batch,
        seed=seed,
        final=final,
        max_drop=max_drop,
    )
    request = Request(dataset=dataset, name=job, spec=spec, run=run if train else None, strict=strict)
    how = _how(_settings(store), local=local, wait=wait, workers=workers)
    _end(launch(request, how), how.settings, as_json=as_json)


@app.command()
def lint(
    dataset: Annotated[Path, typer.Argument(help="Folder with images and Pascal-VOC XML.")],
    image_size: SizeOption = 320,
    resize: ResizeOption = "stretch",
    split: SplitOption = "80/10/10",
    classes: Annotated[str | None, typer.Option(help="As for submit.")] = None,
    ignore_classes: Annotated[str, typer.Option(help="As for submit.")] = "",
    rename: RenameOption = None,
    unknown: UnknownOption = "error",
    background: BackgroundOption = "none",
    pixels: Annotated[bool, typer.Option("--pixels", help="Let workers open every picture too.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write every finding into this file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on any finding.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is in a folder and what would be mended, dropped or set aside. Writes nothing but --csv.

    Example: [bold]producer lint ~/photos --csv lint.csv[/bold]

    Exit code 0: it can be used; 1: a finding stops a submit (with --strict: any finding).
    """
    spec = JobSpec(
        image_size=image_size,
        resize=resize,
        split=shares(split),
        classes=tuple(words(classes)) if classes is not None else None,
        ignore_classes=tuple(words(ignore_classes)),
        rename=renamed(rename),
        unknown=unknown,
        background=background,
        dry=True,
    )
    with Screen(screen_console) as screen:
        linted = lint_folder(dataset, spec=spec, progress=screen.stage, data_root=None)
    findings = list(linted.findings)
    if pixels:
        request = Request(dataset=dataset, name=None, spec=spec, run=None)
        how = _how(_settings(store), local=False, wait=True, workers=2)
        findings = lint_pixels(request, how, findings)
    report = lint_report(linted, findings)
    if csv is not None:
        csv.write_text("".join(f"{row}\r\n" for row in lint_rows(findings)), encoding="utf-8", newline="")
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        out.print(report.render())
    if any(strict or finding.rank == "error" for finding in findings):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check broker, store, data root, workers and versions, and say what to do.

    Example: [bold]producer doctor[/bold]

    Exit code 0: all is well; 1: something is not.
    """
    checks = examine(_settings(store))
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        out.print(texts.checks_table(checks))
    if not all(check.is_well for check in checks):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def resume(
    job: JobName,
    store: StoreOption = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, where no broker is configured.")] = 2,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go on with a job that is found in the store, whatever became of Redis and of who submitted it.

    Example: [bold]producer resume bccd --store out --wait[/bold]
    """
    how = _how(_settings(store), local=False, wait=wait, workers=workers)
    _end(go_on(job, how), how.settings, as_json=as_json)


def _how(settings: ProducerSettings, *, local: bool, wait: bool, workers: int) -> Launch:
    is_local = local or settings.broker_url is None
    return Launch(settings=settings, local=is_local, wait=wait, workers=workers, console=screen_console)


def _end(status: JobStatus, settings: ProducerSettings, *, as_json: bool) -> None:
    """Print how a job ended, and exit with the code that says so."""
    storage = Storage(settings.store)
    if as_json:
        typer.echo(json.dumps(status.as_json(), indent=2))
    elif status.state == "DONE":
        texts.print_result(status, storage, out)
    if status.state == "FAILED" or status.failed:
        screen_console.print(texts.failure_text(status, storage), highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_FAILED)
    if status.state == "CANCELLED":
        screen_console.print(f"{status.job} was cancelled; `producer retry {status.job}` goes on with it")
        raise typer.Exit(EXIT_CANCELLED)


@app.command(name="status")
def status_command(
    job: Annotated[str | None, typer.Argument(help="One job; default: all.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where one job, or every job, stands.

    Example: [bold]producer status bccd --json[/bold]
    """
    settings = _settings(store)
    statuses = _statuses(settings, [job] if job else None)
    if as_json:
        rows = [status.as_json() for status in statuses]
        typer.echo(json.dumps(rows[0] if job else rows, indent=2))
    elif job:
        out.print(texts.status_text(statuses[0]), highlight=False)
    else:
        out.print(texts.jobs_table(statuses))


@app.command(name="list")
def list_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all jobs of the store.

    Example: [bold]producer list --store out[/bold]
    """
    status_command(None, store, as_json)


@app.command()
def watch(job: JobName, store: StoreOption = None) -> None:
    """Show a job's progress until it ends. Only looks; Ctrl-C stops looking, not the job.

    Example: [bold]producer watch bccd[/bold]
    """
    settings = _settings(store)
    _end(service.watch(job, settings, screen_console), settings, as_json=False)


@app.command()
def cancel(job: JobName, store: StoreOption = None) -> None:
    """Cancel a job and its training run.

    Example: [bold]producer cancel bccd[/bold]
    """
    settings = _settings(store)
    out.print(control.cancel(Storage(settings.store), _ledger(settings), job))


@app.command()
def retry(job: JobName, store: StoreOption = None) -> None:
    """Queue the failed shards of a job again, and go on with a failed or cancelled one.

    Example: [bold]producer retry bccd[/bold]
    """
    settings = _settings(store)
    out.print(control.retry(Storage(settings.store), _ledger(settings), job))


@app.command()
def rm(
    job: JobName,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a job's shards and models from the store. The photos are never touched.

    Example: [bold]producer rm bccd --yes[/bold]
    """
    settings = _settings(store)
    load_job(Storage(settings.store), job)
    if not yes:
        typer.confirm(f"Remove jobs/{job} and its run from {settings.store}?", abort=True)
    out.print(control.remove(Storage(settings.store), _ledger(settings), job))


@app.command()
def serve(store: StoreOption = None) -> None:
    """Feed the queue and reconcile, until stopped. Run one; a second waits until the first dies.

    Example: [bold]VOC_BROKER_URL=redis://localhost producer serve[/bold]
    """
    settings = _settings(store)
    logs.set_up(settings.log_format, settings.log_level)
    service.serve(settings)


def _settings(store: str | None) -> ProducerSettings:
    settings = ProducerSettings()
    faults.arm(settings.fault)
    return settings.model_copy(update={"store": store}) if store else settings


def _ledger(settings: ProducerSettings) -> Ledger | None:
    """The ledger if a broker is configured and answers."""
    if settings.broker_url is None:
        return None
    ledger = Ledger(connect(settings.broker()))
    if ledger.is_reachable():
        return ledger
    screen_console.print("Redis cannot be reached: this is what storage says")
    return None


def _statuses(settings: ProducerSettings, names: list[str] | None) -> list[JobStatus]:
    storage, ledger = Storage(settings.store), _ledger(settings)
    jobs = [load_job(storage, name) for name in names or job_names(storage)]
    return [job_status(storage, ledger, job, settings.failed_share) for job in jobs]


def main() -> None:
    """Run the command line; an expected error is one line on standard error, without a traceback."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logs.set_up("text", "ERROR")
    try:
        app()
    except PipelineError as error:
        screen_console.print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except ValidationError as error:
        for fault in error.errors():
            where = ".".join(map(str, fault["loc"])) or "options"
            screen_console.print(f"[red]error:[/red] {where}: {fault['msg']} (found {fault['input']!r})")
        sys.exit(EXIT_USAGE)
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:  # typer makes this of a KeyboardInterrupt
            screen_console.print("stopped; the same command goes on where it was")
        raise


if __name__ == "__main__":
    main()
