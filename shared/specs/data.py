"""What a job asks of the workers: how a folder is read and what its shards hold."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shared.specs.frozen import ClassName, Frozen
from shared.specs.options import NamesText, Option, RenamesText, SharesText

Seed = Annotated[int, Option("Seed of the split and of training.", "Splits"), Field(ge=0, lt=2**31)]


def _shares_of_all(split: tuple[int, int, int]) -> tuple[int, int, int]:
    if sum(split) != 100 or min(split) < 0 or split[0] == 0:
        raise ValueError("expected three shares that sum to 100, with some for train")
    return split


ClassNames = Annotated[tuple[ClassName, ...], NamesText]


def _some_or_all(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if names == ():
        raise ValueError("expected class names, comma separated, such as cat,dog")
    return names


def _regular_expression(text: str) -> str:
    if not text:
        raise ValueError("expected a regular expression, such as '(.*)_'")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"expected a regular expression, such as '(.*)_': {error}") from error
    return text


Pattern = Annotated[str, Field(max_length=1000), AfterValidator(_regular_expression)]


class DataOptions(Frozen):
    """The options by which `lint` and `submit` read a data set; details are in docs/reading-rules.md.

    `image_size` is the side of the stored square picture in pixels, `split` the shares of train, val and test.
    """

    image_size: Annotated[
        int,
        Option("Side of the model's input in pixels, a multiple of 32.", "Data", is_common=True),
        Field(ge=32, le=4096, multiple_of=32),
    ] = 320
    split: Annotated[
        tuple[int, int, int],
        Option("Shares of train/val/test, if the folder has no lists.", "Splits"),
        SharesText,
        AfterValidator(_shares_of_all),
    ] = (80, 10, 10)
    group_by: Annotated[
        Pattern | None,
        Option("Photos go to the same split if this regular expression finds the same text in their paths.", "Splits"),
        Field(exclude_if=lambda group_by: group_by is None),  # older versions' digests do not contain it
    ] = None
    classes: Annotated[
        ClassNames | None,
        Option("Only these classes, comma separated.", "Data", is_common=True),
        AfterValidator(_some_or_all),
    ] = None
    resize: Annotated[
        Literal["stretch", "letterbox"],
        Option("How photos become square: stretch (as MediaPipe does) or letterbox.", "Data"),
    ] = "stretch"
    ignore_classes: Annotated[ClassNames, Option("Leave these classes out, comma separated.", "Data")] = ()
    rename: Annotated[
        dict[ClassName, ClassName],
        Option(r"Rename a class: old=new; may be given several times; write an = in old as \=.", "Data"),
        RenamesText,
    ] = Field(default_factory=dict)
    unknown: Annotated[
        Literal["error", "skip"], Option("Objects of a class that is not in --classes: error or skip.", "Data")
    ] = "error"
    difficult: Annotated[
        Literal["keep", "ignore", "drop"], Option("Objects marked difficult: keep, ignore or drop.", "Data")
    ] = "keep"
    voc_coords: Annotated[
        Literal["corner", "voc1"],
        Option("Pixels count from 0 (corner, as LabelImg and most tools) or from 1 (voc1, as the VOC devkit).", "Data"),
    ] = "corner"
    exif: Annotated[
        Literal["upright", "raw"],
        Option(
            "Boxes of a photo that EXIF turns, if nothing else decides: of the upright or of the raw photo.", "Data"
        ),
    ] = "upright"
    damaged: Annotated[
        Literal["keep", "drop"],
        Option("A picture that ends too early: keep it if 99 % of its rows are there, or drop it.", "Data"),
        Field(exclude_if=lambda damaged: damaged == "keep"),  # older versions' digests do not contain it
    ] = "keep"
    background: Annotated[
        Literal["none", "orphans"],
        Option("Photos without XML: none (left out) or orphans (kept as background).", "Data"),
    ] = "none"
    seed: Seed = 0


class JobSpec(DataOptions):
    """What a job asks of the workers; every field changes the bytes of the shards, or which shards there are."""

    shard_images: Annotated[int, Option("At most this many pictures per shard.", "Output"), Field(ge=1, le=4096)] = 256
    jpeg_quality: int = Field(default=95, ge=50, le=100)
    max_pixels: int = Field(default=200_000_000, ge=1)
    dry: bool = False
