"""The commands that only look: `lint`, `doctor`, `status`, `list`, `watch`."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from producer import service, texts
from producer.doctor import examine
from producer.launch import lint_pixels
from producer.lint import lint_folder
from producer.lint_csv import lint_rows
from producer.lint_report import lint_report
from producer.options import (
    BackgroundOption,
    ClassesOption,
    CoordsOption,
    DifficultOption,
    ExifOption,
    IgnoreOption,
    JobName,
    JsonOption,
    RenameOption,
    ResizeOption,
    SizeOption,
    SplitOption,
    StoreOption,
    UnknownOption,
    renamed,
    shares,
    words,
)
from producer.session import EXIT_ERROR, end, how_to, out, reachable_ledger, read_settings, screen_console
from producer.settings import ProducerSettings
from producer.state import JobStatus, job_names, job_status, load_job
from producer.submit import Request
from producer.watch import Screen
from shared.errors import FormatError
from shared.job import Job, JobSpec
from shared.storage import Storage

app = typer.Typer(rich_markup_mode="rich")


@app.command()
def lint(
    dataset: Annotated[Path, typer.Argument(help="Folder with images and Pascal-VOC XML.")],
    image_size: SizeOption = 320,
    resize: ResizeOption = "stretch",
    split: SplitOption = "80/10/10",
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    classes: ClassesOption = None,
    ignore_classes: IgnoreOption = "",
    rename: RenameOption = None,
    unknown: UnknownOption = "error",
    difficult: DifficultOption = "keep",
    voc_coords: CoordsOption = "corner",
    exif: ExifOption = "upright",
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
        seed=seed,
        classes=tuple(words(classes)) if classes is not None else None,
        ignore_classes=tuple(words(ignore_classes)),
        rename=renamed(rename),
        unknown=unknown,
        difficult=difficult,
        voc_coords=voc_coords,
        exif=exif,
        background=background,
        dry=True,
    )
    with Screen(screen_console) as screen:
        linted = lint_folder(dataset, spec=spec, progress=screen.stage, data_root=_root_of(dataset))
    findings = list(linted.findings)
    pixels = pixels and not linted.findings.of_rank("error")
    if pixels:
        request = Request(dataset=dataset, name=None, spec=spec, run=None)
        how = how_to(read_settings(store), local=False, wait=True, workers=2)
        findings = lint_pixels(request, how, findings)
    report = lint_report(linted, findings)
    if csv is not None:
        csv.write_text("".join(f"{row}\r\n" for row in lint_rows(findings)), encoding="utf-8", newline="")
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        out.print(report.render())
        out.print(report.next_steps(pixels=pixels, listed=csv is not None), highlight=False)
    if any(strict or finding.rank == "error" for finding in findings):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check broker, store, data root, workers and versions, and say what to do.

    Example: [bold]producer doctor[/bold]

    Exit code 0: all is well; 1: something is not.
    """
    checks = examine(read_settings(store))
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        out.print(texts.checks_table(checks))
    if not all(check.is_well for check in checks):
        raise typer.Exit(EXIT_ERROR)


@app.command(name="status")
def status_command(
    job: Annotated[str | None, typer.Argument(help="One job; default: all.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where one job, or every job, stands.

    Example: [bold]producer status bccd --json[/bold]
    """
    settings = read_settings(store)
    statuses = _statuses(settings, [job] if job else None)
    if as_json:
        rows = [status.as_json() for status in statuses]
        typer.echo(json.dumps(rows[0] if job else rows, indent=2))
    elif job:
        out.print(texts.status_text(statuses[0]), highlight=False, soft_wrap=True)
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
    settings = read_settings(store)
    end(service.watch(job, settings, screen_console), settings, as_json=False)


def _root_of(dataset: Path) -> Path:
    """Where links of `dataset` may lead: the data root if the folder is below it, else the folder itself."""
    root = ProducerSettings().data_root
    return root if dataset.resolve().is_relative_to(root.resolve()) else dataset


def _statuses(settings: ProducerSettings, names: list[str] | None) -> list[JobStatus]:
    storage, ledger = Storage(settings.store), reachable_ledger(settings)
    jobs = [load_job(storage, name) for name in names] if names else list(_readable(storage))
    return [job_status(storage, ledger, job, settings.failed_share) for job in jobs]


def _readable(storage: Storage) -> Iterator[Job]:
    """All jobs but those of another version, which are named on standard error."""
    for name in job_names(storage):
        try:
            yield load_job(storage, name)
        except FormatError as error:
            screen_console.print(f"{name} is left out: {error}", highlight=False, soft_wrap=True)
