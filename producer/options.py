"""The options that several commands of the producer share, and how their texts are read."""

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from shared.errors import PlanError

JobName = Annotated[str, typer.Argument(help="The job's name.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="Store: a folder or fsspec URL [dim](VOC_STORE)[/dim].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end, with progress.")]
WorkersOption = Annotated[int, typer.Option(min=1, help="Worker processes, where they run here.")]
SizeOption = Annotated[int, typer.Option(help="Side of the model's input in pixels, a multiple of 32.")]
ResizeOption = Annotated[
    Literal["stretch", "letterbox"], typer.Option(help="stretch (as MediaPipe does) or letterbox.")
]
SplitOption = Annotated[str, typer.Option(help="Shares of train/val/test where the folder has no lists.")]
ClassesOption = Annotated[str | None, typer.Option(help="Only these classes, comma separated.")]
IgnoreOption = Annotated[str, typer.Option(help="Leave these classes out, comma separated.")]
RenameOption = Annotated[list[str] | None, typer.Option(help="old=new; may be given several times.")]
UnknownOption = Annotated[Literal["error", "skip"], typer.Option(help="A class outside --classes: error or skip.")]
DifficultOption = Annotated[
    Literal["keep", "ignore", "drop"], typer.Option(help="Objects marked difficult: keep, ignore or drop.")
]
CoordsOption = Annotated[
    Literal["corner", "voc1"], typer.Option(help="corner (LabelImg and most) or voc1 (devkit, 1-based).")
]
ExifOption = Annotated[
    Literal["upright", "raw"], typer.Option(help="Where EXIF cannot be decided: boxes are upright or raw.")
]
BackgroundOption = Annotated[
    Literal["none", "orphans"], typer.Option(help="Images without XML: none or orphans (kept as background).")
]


def shares(text: str) -> tuple[int, int, int]:
    """`80/10/10` as three shares in percent.

    Raises:
        PlanError: It is something else.
    """
    parts = text.split("/")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise PlanError(f"--split {text!r}: expected three shares in percent, such as 80/10/10")
    return int(parts[0]), int(parts[1]), int(parts[2])


def words(text: str) -> Iterator[str]:
    """The words of a comma separated text."""
    return (word.strip() for word in text.split(",") if word.strip())


def renamed(texts: list[str] | None) -> dict[str, str]:
    """`old=new` texts as a mapping.

    Raises:
        PlanError: One is something else.
    """
    names: dict[str, str] = {}
    for text in texts or ():
        old, separator, new = text.partition("=")
        if not (old and separator and new):
            raise PlanError(f"--rename {text!r}: expected old=new")
        names[old] = new
    return names
