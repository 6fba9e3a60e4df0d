"""`python -m worker`, a worker's own command line: `synthesize` makes a VOC folder, `inspect` shows a job's shards."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from worker.synthetic import MAX_IMAGES, synthesize

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.callback()
def _root() -> None:
    """What a worker knows, by hand: made-up data sets, and pictures of finished shards."""


@app.command(name="synthesize")
def synthesize_command(
    out: Annotated[Path, typer.Argument(help="Folder to write; made if absent.", file_okay=False)],
    images: Annotated[int, typer.Option(min=1, max=MAX_IMAGES, help="Number of pictures.")] = 480,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same set.")] = 0,
) -> None:
    """Make a VOC data set of circles, crosses and triangles (told apart by shape, not by colour).

    Example: python -m worker synthesize out/shapes --images 480 --seed 0
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("synthesize", total=images)
        made = synthesize(out, images=images, seed=seed, progress=lambda done: bar.update(task, completed=done))
    typer.echo(
        json.dumps(
            {
                "folder": str(out),
                "images": made.images,
                "background": made.background,
                "class_counts": made.class_counts,
            }
        )
    )


if __name__ == "__main__":
    app(prog_name="python -m worker")
