"""The commands of the worker: `synthesize` makes a VOC folder, `inspect` shows a job's shards.

`python -m worker` has only these.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from shared import command
from shared.errors import OptionError
from shared.jobs.job import Split
from shared.text import counted, printable
from worker.synthetic import MAX_IMAGES

# Modules without which no command works.
NEEDS: Final = ("cv2", "google_crc32c", "google.protobuf", "lxml", "numpy", "obstore", "pydantic_settings")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What a worker can do by hand: make up data sets, show the pictures of finished shards.",
)


@app.command(name="synthesize")
def synthesize_command(
    out: Annotated[Path, typer.Argument(help="Folder to write; made if absent.", file_okay=False)],
    images: Annotated[int, typer.Option(min=1, max=MAX_IMAGES, help="Number of pictures.")] = 480,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same set.")] = 0,
) -> None:
    """Make a VOC data set of circles, crosses and triangles (told apart by shape, not by colour).

    Prints what was made as one line of JSON.

    Example: voc2tflite synthesize out/shapes --images 480 --seed 0
    """
    command.require_local(out, "OUT")
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from worker.synthetic.shapes import foreign_file, synthesize

    if (there := foreign_file(out, images)) is not None:
        raise OptionError(
            f"{out}: {there} lies there, and made-up photos and lists would mix with it: name a new folder"
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("synthesize", total=images)
        made = synthesize(out, images=images, seed=seed, progress=lambda done: bar.update(task, completed=done))
    typer.echo(json.dumps({"folder": str(out), **asdict(made)}))


@app.command(name="inspect")
def inspect_command(
    job: Annotated[str, typer.Argument(help="Name of a job with finished shards.")],
    store: Annotated[
        str | None, typer.Option(help="Where jobs are kept: a folder or s3://, gs://, az:// (VOC_STORE; default: out).")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, max=400, help="Number of records to draw.")] = 16,
    split: Annotated[Split | None, typer.Option(help="Only train, val or test.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same records.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Picture to write; default: inspect-JOB.png in this folder.")] = None,
) -> None:
    """Draw random records from a job's shards, with their boxes and labels, and print the first one.

    Example: voc2tflite inspect demo --store out/demo --n 16
    """
    import cv2

    from shared.settings import CommonSettings
    from shared.storage import Storage
    from worker.inspect import describe_record, draw_grid, draw_records

    drawn = draw_records(Storage(store or CommonSettings().store), job, count=n, seed=seed, split=split)
    written, encoded = cv2.imencode(".png", draw_grid(drawn))
    target = png or Path(f"inspect-{job}.png")
    if not written:
        raise typer.Exit(1)
    target.write_bytes(encoded.tobytes())
    typer.echo(describe_record(drawn[0]))
    typer.echo(printable(f"{counted(len(drawn), 'record')} drawn: {target}"))


def main() -> None:
    """Run the worker's commands."""
    command.run(app, prog_name="python -m worker")


if __name__ == "__main__":
    main()
