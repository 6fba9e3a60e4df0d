"""`predict`: photos, videos or a camera -> what a model sees in them. It needs LiteRT but not TensorFlow."""

import json
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shared import command
from shared.errors import OptionError, PipelineError
from shared.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer.inference.detector import Detector
    from trainer.inference.outputs import DetectionWriter
    from trainer.inference.sources import Frame
    from trainer.inference.voc_files import VocWriter
    from trainer.inference.window import Window

# For `evaluate` too. LiteRT ends the process without a message if the system does not give it that many threads.
MOST_THREADS: Final = 256

# How many of the pictures that were drawn under another name are named.
_NAMED: Final = 3

app = typer.Typer()


@app.command(name="predict")
def predict_command(  # long: a line for each option
    model: Annotated[str, typer.Argument(help="An exported .tflite: a file, or s3://, gs://, az:// of a bucket.")],
    sources: Annotated[list[str], typer.Argument(help="Pictures, folders, videos, or the index of a camera (0).")],
    out: Annotated[Path | None, typer.Option(help="Folder for drawn pictures and videos, and detections.json.")] = None,
    *,
    voc: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a Pascal-VOC XML file per picture, to correct in LabelImg or CVAT; frames of a video or "
            "camera are saved there too."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show them in a window; any key shows the next one, q quits.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print COCO JSON instead of a line per picture.")] = False,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least score of a detection. Default: the model's best.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="CPU threads.")] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Look at no more than this many frames of a video or camera.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Look only at every N-th frame of a video or camera.")] = 1,
) -> None:
    """Find objects in pictures, videos and cameras; needs only numpy, OpenCV and LiteRT.

    Example: voc2tflite predict out/demo/runs/demo/model_int8.tflite photos/ --out seen
    """
    from trainer.inference.detector import Detector
    from trainer.inference.outputs import DetectionWriter
    from trainer.inference.voc_files import VocWriter
    from trainer.inference.window import Window

    command.require_local(out, "--out")
    command.require_local(voc, "--voc")
    _require_own_folder(out, sources)
    failed: list[str] = []
    content = model_at(model)
    found = (_frames(source, limit, every, failed, is_only=len(sources) == 1) for source in sources)
    pictures = _opened(map(_with_folder, each) if _are_of_several(sources) else each for each in found)
    window = Window(model) if show else None
    detector = Detector(content, threads, file=model)
    least = detector.description.threshold if threshold is None else threshold
    if threshold is None:
        typer.echo(f"scores of at least {least:.2f}, the model's best threshold; --threshold sets another", err=True)
    annotations = None if voc is None else VocWriter(voc, detector.labels)
    if voc is not None and every == 1:
        pictures = _tell_each_is_saved(pictures)
    writer = DetectionWriter(labels=detector.labels, folder=out)
    try:
        for name, names in _seen(detector, (writer, annotations), window, pictures, least):
            if not as_json:
                typer.echo(printable(f"{name}: {_counted(names)}"))
    finally:  # a camera is stopped by Ctrl-C
        writer.finish()
        if window is not None:
            window.close()
    if as_json:
        typer.echo(json.dumps(writer.coco()))
    if annotations is not None:
        _tell_annotations(annotations)
    _conclude(writer, failed, len(sources))


def _require_own_folder(out: Path | None, sources: "Iterable[str]") -> None:
    """Check that nothing that is drawn can replace a picture.

    Raises:
        OptionError: `--out` is a file, the folder of a source, or has pictures or videos that `predict` did not draw.
    """
    from trainer.inference.outputs import DETECTIONS, DRAWN

    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out {out}: expected a folder, found a file")
    for place in map(Path, sources):
        if out.resolve() == (place if place.is_dir() else place.parent).resolve() and place.exists():
            raise OptionError(f"--out {out}: {place} lies there, and what is drawn could replace it: name a new folder")
    if out.is_dir() and not (out / DETECTIONS).exists():  # no earlier `predict` drew into it
        known = next((path for path in sorted(out.iterdir()) if path.suffix in DRAWN), None)
        if known is not None:
            raise OptionError(f"--out {out}: {known} lies there, and what is drawn could replace it: name a new folder")


def model_at(place: str) -> "Path | bytes":
    """The model's path, or its bytes if it is in a bucket.

    Raises:
        OptionError: There is no such file.
    """
    if "://" in place:
        from shared.model.file import MOST_MODEL_BYTES
        from shared.storage import Storage

        folder, _, name = place.rpartition("/")
        return Storage(folder).read_range(name, 0, MOST_MODEL_BYTES + 1)
    path = Path(place)
    if not path.is_file():
        inside = path / "model_int8.tflite"
        run = "RUN" if path.suffix == ".tflite" else path.name
        meant = inside if inside.is_file() else f"STORE/runs/{run}/model_int8.tflite"
        raise OptionError(
            f"{place}: {'a folder' if path.is_dir() else 'no such file'}; expected an exported .tflite, such as {meant}"
        )
    return path


def _tell_annotations(annotations: "VocWriter") -> None:
    """Tell the user where the XML files are.

    Raises:
        PipelineError: Some pictures have none.
    """
    lie = "is" if annotations.written == 1 else "are"
    if annotations.written:
        saved = f", with {counted(annotations.saved, 'picture')} of frames" if annotations.saved else ""
        where = f"{counted(annotations.written, 'XML file')}{saved} {lie} in {annotations.folder}"
        typer.echo(printable(where), err=True)
    if annotations.refused:
        has = "has" if len(annotations.refused) == 1 else "have"
        raise PipelineError(f"{len(annotations.refused)} {has} no XML: {annotations.refused[0]}")


def _conclude(writer: "DetectionWriter", failed: list[str], sources: int) -> None:
    """Tell the user where the drawn pictures are.

    Raises:
        PipelineError: Some of the sources could not be read, or there was nothing to look at.
    """
    if writer.folder is not None and writer.images:
        typer.echo(printable(f"the drawn pictures and detections.json are in {writer.folder}"), err=True)
    if writer.renamed:
        others = f" and {len(writer.renamed) - _NAMED} more" if len(writer.renamed) > _NAMED else ""
        typer.echo(
            printable(f"drawn under another name, as theirs was taken: {', '.join(writer.renamed[:_NAMED])}{others}"),
            err=True,
        )
    if failed:
        raise PipelineError(f"{len(failed)} of {sources} could not be looked at: {', '.join(failed)}")
    if not writer.images:
        raise PipelineError("no picture was found")


def _frames(source: str, limit: int | None, every: int, failed: list[str], *, is_only: bool) -> "Iterator[Frame]":
    """The frames of one source; if one of several sources cannot be read, that is printed and noted in `failed`.

    Raises:
        ImageError: The only source cannot be read.
    """
    from shared.errors import ImageError
    from trainer.inference.sources import frames

    try:
        yield from frames(source, limit, lambda line: typer.echo(printable(line), err=True), every=every)
    except ImageError as error:
        if is_only:
            raise
        failed.append(source)
        command.complain(str(error))


def _tell_each_is_saved(pictures: "Iterable[Frame]") -> "Iterator[Frame]":
    """The frames; before the first one of a video or camera the user is told that each becomes a picture."""
    for frame in pictures:
        if frame.video is not None and frame.is_first:
            said = f"{frame.video}: each frame becomes a picture; --every {round(frame.fps)} takes one a second"
            typer.echo(printable(said), err=True)
        yield frame


def _are_of_several(sources: "Iterable[str]") -> bool:
    """Whether the files lie in several folders and so may have the same name."""
    there = [path for path in map(Path, sources) if path.exists()]
    return len({(path if path.is_dir() else path.parent).resolve() for path in there}) > 1


def _with_folder(frame: "Frame") -> "Frame":
    """The frame, to be shown with its folder."""
    return frame if frame.path is None else replace(frame, place=str(frame.path.parent / frame.shown))


def _opened(sources: "Iterable[Iterator[Frame]]") -> "Iterator[Frame]":
    """All frames; the first one is read at once, so that a missing camera is noticed before a model is loaded."""
    pictures = chain.from_iterable(sources)
    return chain(list(islice(pictures, 1)), pictures)


def _seen(
    detector: "Detector",
    writers: "tuple[DetectionWriter, VocWriter | None]",
    window: "Window | None",
    pictures: "Iterator[Frame]",
    least: float,
) -> "Iterator[tuple[str, list[str]]]":
    """Detect in each frame, write and show it until a person closes the window; yields its name and class names."""
    from trainer.inference.draw import draw_detections

    writer, annotations = writers
    is_drawn = window is not None or writer.folder is not None
    for frame in pictures:
        seen = detector.detect(frame.pixels).above(least)
        drawn = draw_detections(frame.pixels, seen, detector.labels) if is_drawn else frame.pixels
        writer.add(frame, seen, drawn)
        if annotations is not None:
            annotations.add(frame, seen)
        yield frame.shown, [detector.labels[at - 1] for at in seen.class_ids]
        if window is not None and not window.show(drawn, frame.shown, wait=frame.video is None):
            return


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "nothing"
