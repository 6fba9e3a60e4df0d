"""`python -m producer` (or `producer`): jobs from the command line, and the service that keeps them going."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from producer import control, look, service
from producer.launch import go_on, launch
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
    WaitOption,
    renamed,
    shares,
    words,
)
from producer.passwords import make_users
from producer.session import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    end,
    how_to,
    out,
    reachable_ledger,
    read_settings,
    screen_console,
)
from producer.state import load_job
from producer.submit import Request
from producer.training import (
    USUAL,
    BackboneOption,
    BatchOption,
    ColoursOption,
    EpochsOption,
    FinalOption,
    FlipsOption,
    MinutesOption,
    ModelOption,
    MosaicOption,
    PatienceOption,
    PrecisionOption,
    QuantizeOption,
    RateOption,
    RotateOption,
    StopOption,
    TranslateOption,
    TurnsOption,
    VerticalOption,
    WeightsOption,
    ZoomOption,
    augmentation,
    stored_weights,
)
from shared import logs
from shared.errors import PipelineError
from shared.job import JobSpec, RunSpec
from shared.storage import Storage

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="From a folder of Pascal-VOC photos to an int8 TFLite detector: submit jobs, watch them, keep them going.",
)
app.add_typer(look.app)


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
    classes: ClassesOption = None,
    ignore_classes: IgnoreOption = "",
    rename: RenameOption = None,
    unknown: UnknownOption = "error",
    difficult: DifficultOption = "keep",
    voc_coords: CoordsOption = "corner",
    exif: ExifOption = "upright",
    background: BackgroundOption = "none",
    shard_images: Annotated[int, typer.Option(help="At most this many pictures a shard.")] = 256,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train and export a detector.")] = True,
    model: ModelOption = "small",
    backbone: BackboneOption = "conv",
    weights: WeightsOption = "none",
    epochs: EpochsOption = None,
    max_minutes: MinutesOption = 30,
    batch: BatchOption = 8,
    learning_rate: RateOption = None,
    precision: PrecisionOption = "float32",
    quantize: QuantizeOption = "ptq",
    final: FinalOption = False,
    stop_at_map: StopOption = None,
    patience: PatienceOption = None,
    flips: FlipsOption = True,
    vertical_flips: VerticalOption = False,
    quarter_turns: TurnsOption = False,
    rotate: RotateOption = USUAL.rotate_deg,
    zoom: ZoomOption = USUAL.zoom,
    translate: TranslateOption = USUAL.translate,
    mosaic: MosaicOption = USUAL.mosaic,
    colours: ColoursOption = True,
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
    settings = read_settings(store)
    run = RunSpec(
        run="job",
        job="job",
        model=model,
        backbone=backbone,
        weights=stored_weights(weights, Storage(settings.store)),
        epochs=epochs,
        max_minutes=max_minutes or None,
        batch=batch,
        learning_rate=learning_rate,
        precision=precision,
        quantize=quantize,
        seed=seed,
        final=final,
        stop_at_map=stop_at_map,
        patience=patience,
        max_drop=max_drop,
        augmentation=augmentation(
            flips=flips,
            vertical_flips=vertical_flips,
            quarter_turns=quarter_turns,
            colours=colours,
            rotate=rotate,
            zoom=zoom,
            translate=translate,
            mosaic=mosaic,
        ),
    )
    request = Request(dataset=dataset, name=job, spec=spec, run=run if train else None, strict=strict)
    how = how_to(settings, local=local, wait=wait, workers=workers)
    end(launch(request, how), how.settings, as_json=as_json)


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
    how = how_to(read_settings(store), local=False, wait=wait, workers=workers)
    end(go_on(job, how), how.settings, as_json=as_json)


@app.command()
def cancel(job: JobName, store: StoreOption = None) -> None:
    """Cancel a job and its training run.

    Example: [bold]producer cancel bccd[/bold]
    """
    settings = read_settings(store)
    out.print(control.cancel(Storage(settings.store), reachable_ledger(settings), job))


@app.command()
def retry(
    job: JobName,
    store: StoreOption = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed; a cancelled job stays cancelled.")
    ] = False,
) -> None:
    """Do the failed shards of a job and its failed run again, and go on with a cancelled one. What is done stays.

    Example: [bold]producer retry bccd[/bold]
    """
    settings = read_settings(store)
    storage, ledger = Storage(settings.store), reachable_ledger(settings)
    out.print(control.retry(storage, ledger, job, only_failed=failed), soft_wrap=True)


@app.command()
def rm(
    job: JobName,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a job's shards and models from the store. The photos are never touched.

    Example: [bold]producer rm bccd --yes[/bold]
    """
    settings = read_settings(store)
    load_job(Storage(settings.store), job)
    if not yes:
        typer.confirm(f"Remove jobs/{job} and its run from {settings.store}?", abort=True)
    out.print(control.remove(Storage(settings.store), reachable_ledger(settings), job))


@app.command()
def acl(folder: Annotated[Path, typer.Argument(help="Gets a password file for each user, and users.acl.")]) -> None:
    """Make Redis users for producer, worker, trainer and monitoring, each with the rights that it needs and no more.

    Example: [bold]producer acl secrets && redis-server --aclfile secrets/users.acl[/bold]
    """
    file = make_users(folder)
    out.print(f"{file}: redis-server --aclfile {file}, and for each service", highlight=False, soft_wrap=True)
    out.print(f"VOC_BROKER_URL=redis://USER@HOST VOC_BROKER_PASSWORD_FILE={folder}/USER_password", soft_wrap=True)


@app.command()
def serve(store: StoreOption = None) -> None:
    """Feed the queue and reconcile, until stopped. Run one; a second waits until the first dies.

    Example: [bold]VOC_BROKER_URL=redis://localhost producer serve[/bold]
    """
    settings = read_settings(store)
    logs.set_up(settings.log_format, settings.log_level)
    service.serve(settings)


def main() -> None:
    """Run the command line; an expected error is one line on standard error, without a traceback."""
    # Both explicitly: a shell script starts its background jobs with SIGINT ignored, and Python would leave it so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
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
