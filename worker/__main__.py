"""`python -m worker`, a worker's own command line: `synthesize` makes a VOC folder, `inspect` shows a job's shards."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import cv2
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shared.errors import PipelineError
from shared.job import SPLITS, Split
from shared.settings import CommonSettings
from shared.storage import Storage
from worker.inspect import describe_record, draw_grid, draw_records
from worker.quirks import synthesize_quirks
from worker.synthetic import MAX_IMAGES, synthesize

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _root() -> None:
    """What a worker knows, by hand: made-up data sets, and the pictures of finished shards."""


@app.command(name="synthesize")
def synthesize_command(
    out: Annotated[Path, typer.Argument(help="Folder to write; made if absent.", file_okay=False)],
    images: Annotated[int, typer.Option(min=1, max=MAX_IMAGES, help="Number of pictures.")] = 480,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same set.")] = 0,
    quirks: Annotated[
        bool, typer.Option("--quirks", help="Instead: one pair for each known quirk of real VOC folders, counted.")
    ] = False,
) -> None:
    """Make a VOC data set of circles, crosses and triangles (told apart by shape, not by colour).

    Prints what was made as one line of JSON.

    Example: python -m worker synthesize out/shapes --images 480 --seed 0

    Example: python -m worker synthesize out/quirks --quirks
    """
    if quirks:
        typer.echo(json.dumps({"folder": str(out), **asdict(synthesize_quirks(out))}))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("synthesize", total=images)
        made = synthesize(out, images=images, seed=seed, progress=lambda done: bar.update(task, completed=done))
    typer.echo(json.dumps({"folder": str(out), **asdict(made)}))


@app.command(name="inspect")
def inspect_command(
    job: Annotated[str, typer.Argument(help="Name of a job with finished shards.")],
    store: Annotated[str | None, typer.Option(help="Where the job lies; VOC_STORE by default.")] = None,
    n: Annotated[int, typer.Option("--n", min=1, max=400, help="Number of records to draw.")] = 16,
    split: Annotated[str | None, typer.Option(help="Only train, val or test.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same records.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Picture to write; inspect-JOB.png here by default.")] = None,
) -> None:
    """Draw random records from a job's shards, with their boxes and labels, and print the first one.

    Example: python -m worker inspect demo --store out/demo --n 16
    """
    if split not in (None, *SPLITS):
        raise typer.BadParameter(f"{split!r} is not one of {', '.join(SPLITS)}", param_hint="--split")
    chosen: Split | None = next((name for name in SPLITS if name == split), None)
    try:
        drawn = draw_records(Storage(store or CommonSettings().store), job, count=n, seed=seed, split=chosen)
        written, encoded = cv2.imencode(".png", draw_grid(drawn))
    except PipelineError as error:
        typer.echo(f"inspect: {error}", err=True)
        raise typer.Exit(1) from error
    target = png or Path(f"inspect-{job}.png")
    if not written:
        raise typer.Exit(1)
    target.write_bytes(encoded.tobytes())
    typer.echo(describe_record(drawn[0]))
    typer.echo(f"{len(drawn)} records drawn: {target}")


if __name__ == "__main__":
    app(prog_name="python -m worker")
