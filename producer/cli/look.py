"""The commands that only look: `lint`, `doctor`, `status`, `list`, `watch`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from producer.cli.common_options import JobName, JsonOption, RunOption, StoreOption, with_model_options
from producer.cli.session import (
    EXIT_ERROR,
    end,
    folder_of,
    out,
    reachable_ledger,
    read_settings,
    require_job_of,
    screen_console,
    start_options,
)
from shared import command
from shared.jobs.job import Job
from shared.specs.data import DataOptions, JobSpec

if TYPE_CHECKING:
    from shared.storage import DataFolder, Storage

app = typer.Typer()


@app.command()
@with_model_options
def lint(  # long: an option each
    dataset: Annotated[
        str,
        typer.Argument(help="Folder with images and Pascal-VOC XML (or s3://, gs://, az://), or a zip or tar of one."),
    ],
    *,
    data: DataOptions,
    pixels: Annotated[bool, typer.Option("--pixels", help="Also let workers open every picture.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write all findings to this file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on any finding.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is in a folder, and what would be repaired, dropped or set aside. Writes nothing except --csv.

    A zip or tar is first unpacked into the store, only once: `submit` then uses the same folder.

    Example: [bold]voc2tflite lint ~/photos --csv lint.csv[/bold]

    Exit code 0: the folder can be used; 1: a finding would stop a submit (with --strict: any finding).
    """
    from producer.dataset.lint import lint_folder
    from producer.finalize.lint_csv import lint_rows
    from producer.run.lint_pixels import lint_pixels
    from producer.terminal.lint_page import lint_report
    from producer.terminal.progress import Screen
    from shared.storage import Storage

    spec = JobSpec(**dict(data), dry=True)
    options = start_options(read_settings(store), local=False, wait=True, workers=2)
    folder = folder_of(dataset, options)
    root = options.data_root(folder) if pixels and options.local else _root_of(folder)
    with Screen(screen_console) as screen:
        linted = lint_folder(folder, spec=spec, progress=screen.stage, data_root=root)
    pixels = pixels and not linted.findings.of_rank("error")
    linted, findings = lint_pixels(linted, options) if pixels else (linted, list(linted.findings))
    report = lint_report(linted, findings)
    if csv is not None:
        csv.write_text("".join(f"{row}\r\n" for row in lint_rows(findings)), encoding="utf-8", newline="")
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        out.print(report.render(), crop=False)
        at = Storage(options.settings.store)
        typed = Path(dataset) if dataset.startswith("-") else dataset  # so that the hint does not show it as an option
        steps = report.next_steps(typed, pixels=pixels, listed=csv is not None, strict=strict, store=at)
        out.print(steps, soft_wrap=True)
    if any(strict or finding.rank == "error" for finding in findings):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def doctor(
    job: Annotated[str | None, typer.Argument(help="Check this job from its request to its model.")] = None,
    run: RunOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check broker, store, data root, workers and versions, or all files of a job, and say what to do.

    Example: [bold]voc2tflite doctor bccd[/bold]

    Exit code 0: all is well; 1: something is not.
    """
    from producer.doctor.job_chain import check_chain
    from producer.doctor.setup import check_setup
    from producer.state.stored import load_job
    from producer.terminal import job_text
    from producer.terminal.progress import Screen
    from shared.storage import Storage

    require_job_of(run, job)
    settings = read_settings(store)
    if job is None:
        checks = check_setup(settings)
    else:
        storage = Storage(settings.store)
        with Screen(screen_console) as screen:
            checks = check_chain(storage, load_job(storage, job, run), settings.failed_share, screen.stage)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        out.print(job_text.checks_table(checks))
        for line in job_text.remedies(checks):
            out.print(line, soft_wrap=True, markup=False)
    if not all(check.is_well for check in checks):
        raise typer.Exit(EXIT_ERROR)


@app.command(name="status")
def status_command(
    job: Annotated[str | None, typer.Argument(help="One job; default: all.")] = None,
    run: RunOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of one job or of all jobs.

    Example: [bold]voc2tflite status bccd --json[/bold]
    """
    from producer.doctor.disk import sized
    from producer.state.runs import requests_by_job
    from producer.state.status import job_status
    from producer.state.stored import load_job
    from producer.terminal import job_text
    from shared.storage import Storage

    require_job_of(run, job)
    settings = read_settings(store)
    storage, ledger = Storage(settings.store), reachable_ledger(settings)
    jobs = [load_job(storage, job, run)] if job else list(_readable(storage))
    requests, away = requests_by_job(storage), settings.broker_url is not None and ledger is None
    look = partial(job_status, storage, ledger, failed_share=settings.failed_share, requests=requests)
    statuses = [sized(storage, look(each, is_unreachable=away)) for each in jobs]
    if as_json:
        rows = [status.as_json() for status in statuses]
        typer.echo(json.dumps(rows[0] if job else rows, indent=2))
    elif job:
        out.print(job_text.status_text(statuses[0]), soft_wrap=True)
    elif not statuses:
        first = command.hint("submit", "FOLDER", store=storage)
        out.print(f"no jobs in {storage.root}: `{first}`", soft_wrap=True)
    else:
        out.print(job_text.jobs_table(statuses))
        out.print(job_text.remarks(statuses, out.width), soft_wrap=True)


@app.command(name="list")
def list_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List all jobs of the store.

    Example: [bold]voc2tflite list --store out[/bold]
    """
    status_command(None, None, store, as_json)


@app.command(name="watch")
def watch_command(job: JobName, run: RunOption = None, store: StoreOption = None) -> None:
    """Show a job's progress until it ends. Ctrl-C only stops the watching, not the job.

    Example: [bold]voc2tflite watch bccd[/bold]
    """
    from producer.run.watch import watch

    settings = read_settings(store)
    end(watch(job, settings, screen_console, run), settings, as_json=False)


def _root_of(dataset: "DataFolder") -> "DataFolder":
    """Where links of `dataset` may lead: the data root if the folder is below it, otherwise the folder itself."""
    from producer.settings import ProducerSettings
    from shared.storage import BucketFolder, data_folder

    root = data_folder(ProducerSettings().data_root)
    if isinstance(dataset, BucketFolder) or isinstance(root, BucketFolder):
        return dataset
    return root if dataset.resolve().is_relative_to(root.resolve()) else dataset


def _readable(storage: "Storage") -> Iterator[Job]:
    """All jobs but those that cannot be read, which are named on standard error."""
    from producer.state.stored import job_names
    from shared.errors import FormatError, StorageError
    from shared.jobs.identity import find_job

    for name in job_names(storage):
        try:
            job = find_job(storage, name)
            if job is not None:
                yield job
        except (FormatError, StorageError) as error:
            screen_console.print(f"{name} is left out: {error}", soft_wrap=True)
