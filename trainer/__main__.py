"""The commands of the trainer: `export` a run again, `evaluate` its models, `predict` with one, compare `sizes`.

`python -m trainer` has these alone. TensorFlow is imported only by what needs it.
"""

import json
import os
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from shared import command
from shared.errors import OptionError, PipelineError
from shared.text import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shared.storage import Storage
    from trainer.inference.detector import Detector
    from trainer.inference.outputs import DetectionWriter
    from trainer.inference.sources import Frame
    from trainer.inference.voc_files import VocWriter
    from trainer.inference.window import Window
    from trainer.network.backbone import Size
    from trainer.network.detector import Backbone
    from trainer.settings import TrainerSettings
    from trainer.sizes import Cost

# Modules without which no command works. Where they are all there is (the extra `predict`), the others are not shown.
NEEDS: Final = ("ai_edge_litert", "cv2", "numpy")
_SIZES: Final[tuple["Size", ...]] = ("nano", "small", "medium")
_FORMS: Final = ("float32", "float16", "dynamic", "int8")
_MOST_THREADS: Final = 256
_NEEDS_MORE: Final = find_spec("tensorflow") is None

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What the trainer can do by hand: export, measure, predict, compare.",
)

Store = Annotated[
    str | None,
    typer.Option(help="Where jobs and runs are kept: a folder or s3://, gs://, az:// (VOC_STORE; default: out)."),
]


@app.command(name="predict")
def predict_command(  # long: a line for each option
    model: Annotated[str, typer.Argument(help="An exported .tflite: a file, or s3://, gs://, az:// of a bucket.")],
    sources: Annotated[list[str], typer.Argument(help="Pictures, folders, videos, or the index of a camera (0).")],
    out: Annotated[Path | None, typer.Option(help="Folder for drawn pictures and videos, and detections.json.")] = None,
    *,
    voc: Annotated[
        Path | None, typer.Option(help="Folder for one Pascal-VOC XML a picture, to be corrected in LabelImg or CVAT.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show them in a window; a key goes on, q ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print COCO JSON instead of a line a picture.")] = False,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Least score of a detection. Default: the model's best.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many frames of a video or camera.")] = None,
) -> None:
    """Look for objects in pictures, videos and cameras; needs numpy, OpenCV and LiteRT only.

    Example: voc2tflite predict out/demo/runs/demo/model_int8.tflite photos/ --out seen
    """
    from trainer.inference.detector import Detector
    from trainer.inference.outputs import DetectionWriter
    from trainer.inference.voc_files import VocWriter
    from trainer.inference.window import Window

    _require_own_folder(out, sources)
    failed: list[str] = []
    pictures = _opened(_frames(source, limit, failed, is_only=len(sources) == 1) for source in sources)
    window = Window(model) if show else None
    detector = Detector(_model_at(model), threads, file=model)
    least = detector.description.threshold if threshold is None else threshold
    if threshold is None:
        typer.echo(f"scores of at least {least:.2f}, the model's best threshold; --threshold sets another", err=True)
    annotations = None if voc is None else VocWriter(voc, detector.labels)
    writer = DetectionWriter(labels=detector.labels, folder=out)
    try:
        for name, names in _seen(detector, (writer, annotations), window, pictures, least):
            if not as_json:
                typer.echo(printable(f"{name}: {_counted(names)}"))
    finally:  # Ctrl-C is how a camera ends
        writer.finish()
        if window is not None:
            window.close()
    if as_json:
        typer.echo(json.dumps(writer.coco()))
    if annotations is not None:
        _tell_annotations(annotations)
    _conclude(writer, failed, len(sources))


def _require_own_folder(out: Path | None, sources: "Iterable[str]") -> None:
    """Check that nothing drawn can take the place of a picture.

    Raises:
        OptionError: `--out` is a file, or the folder of a source.
    """
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out {out}: expected a folder, found a file")
    for place in map(Path, sources):
        if out.resolve() == (place if place.is_dir() else place.parent).resolve() and place.exists():
            raise OptionError(f"--out {out}: {place} lies there, and what is drawn could replace it: name a new folder")


def _model_at(place: str) -> "Path | bytes":
    """The model's file, or its bytes where it is in a bucket.

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
        meant = f", such as {inside}" if inside.is_file() else f", such as STORE/runs/{path.name}/model_int8.tflite"
        raise OptionError(
            f"{place}: {'a folder' if path.is_dir() else 'no such file'}; expected an exported .tflite{meant}"
        )
    return path


def _tell_annotations(annotations: "VocWriter") -> None:
    """Say where the XML files are.

    Raises:
        PipelineError: Some pictures have none.
    """
    typer.echo(printable(f"{annotations.written} XML files are in {annotations.folder}"), err=True)
    if annotations.refused:
        raise PipelineError(f"{len(annotations.refused)} have no XML: {annotations.refused[0]}")


def _conclude(writer: "DetectionWriter", failed: list[str], sources: int) -> None:
    """Say where what was drawn is.

    Raises:
        PipelineError: Some of the sources could not be read, or there was nothing to look at.
    """
    if writer.folder is not None and writer.images:
        typer.echo(printable(f"what was drawn and detections.json are in {writer.folder}"), err=True)
    if failed:
        raise PipelineError(f"{len(failed)} of {sources} could not be looked at: {', '.join(failed)}")
    if not writer.images:
        raise PipelineError("no picture was found")


def _frames(source: str, limit: int | None, failed: list[str], *, is_only: bool) -> "Iterator[Frame]":
    """The frames of one source. One of several that cannot be read is told, and noted in `failed`.

    Raises:
        ImageError: The only one cannot be read.
    """
    from shared.errors import ImageError
    from trainer.inference.sources import frames

    try:
        yield from frames(source, limit, lambda line: typer.echo(printable(line), err=True))
    except ImageError as error:
        if is_only:
            raise
        failed.append(source)
        command.complain(str(error))


def _opened(sources: "Iterable[Iterator[Frame]]") -> "Iterator[Frame]":
    """All frames; the first one is there already, so that a camera that is absent is known before a model is loaded."""
    pictures = chain.from_iterable(sources)
    return chain(list(islice(pictures, 1)), pictures)


def _seen(
    detector: "Detector",
    writers: "tuple[DetectionWriter, VocWriter | None]",
    window: "Window | None",
    pictures: "Iterator[Frame]",
    least: float,
) -> "Iterator[tuple[str, list[str]]]":
    """Look at every frame, write and show it, until a person closes the window; its name and what was seen."""
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


@app.command(name="evaluate", hidden=_NEEDS_MORE)
def evaluate_command(  # long: a line for each option
    run: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run of the store, or an exported .tflite.")],
    folder: Annotated[
        str | None, typer.Argument(help="With a MODEL: photos with Pascal-VOC XML, as submit takes them.")
    ] = None,
    store: Store = None,
    split: Annotated[
        Literal["train", "val", "test"] | None, typer.Option(help="Default: test of a run, all photos of a FOLDER.")
    ] = None,
    form: Annotated[
        list[str] | None,
        typer.Option(help="Only these forms of a run; may be given more than once."),
    ] = None,
    *,
    html: Annotated[Path | None, typer.Option(help="Of a FOLDER: write a page with pictures too.")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="Of a FOLDER, as submit has it: old=new.")] = None,
    voc_coords: Annotated[Literal["corner", "voc1"] | None, typer.Option(help="The same.")] = None,
    difficult: Annotated[Literal["keep", "ignore", "drop"] | None, typer.Option(help="The same.")] = None,
    background: Annotated[Literal["none", "orphans"] | None, typer.Option(help="The same.")] = None,
    threads: Annotated[str, typer.Option(help="Milliseconds by so many CPU threads, such as 1,2,4.")] = "1",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a run's exported models on a split of its job, or any model on a folder of photos, through LiteRT.

    Example: voc2tflite evaluate demo --store out/demo --split val

    Without a job: voc2tflite evaluate model_int8.tflite ~/new-photos --html seen.html
    """
    reading = {"rename": rename, "voc-coords": voc_coords, "difficult": difficult, "background": background}
    typed = [
        word
        for name, value in reading.items()
        for each in (value if isinstance(value, list) else [value] if value else [])
        for word in (f"--{name}", each)
    ]
    timed = _threads(threads)
    if folder is not None:
        if form or store:
            raise OptionError("a MODEL on a FOLDER needs no --store and no --form: the file is one form")
        _evaluate_photos(run, folder, split, typed, html, timed, as_json=as_json)
        return
    if html and not typed and not run.endswith(".tflite"):
        raise OptionError(f"--html goes with a MODEL and a FOLDER; run {run} has its report.html in its folder")
    if run.endswith(".tflite") or typed or html:
        raise OptionError("expected a run of the store, or a MODEL and a FOLDER of photos to measure it on")
    _check_known("--form", form, [f"{each}{raw}" for raw in ("", "_raw") for each in _FORMS])
    storage = _storage_with(run, store)
    settings = _start_tensorflow()
    from trainer.rerun import evaluate_run

    measured_by: dict[str, Any] = {"threads": settings.threads or 1, "copies": settings.shard_folder()}
    measured_by["timed_threads"] = timed
    metrics = evaluate_run(run, storage=storage, split=split or "test", forms=form, **measured_by)
    typer.echo(json.dumps(metrics) if as_json else _table(metrics))


def _threads(typed: str) -> tuple[int, ...]:
    """`1,2,4` as numbers.

    Raises:
        OptionError: It is something else.
    """
    counts = tuple(int(word) if word.isdecimal() else 0 for word in typed.split(","))
    if not all(1 <= count <= _MOST_THREADS for count in counts) or len(set(counts)) < len(counts):
        raise OptionError(f"--threads {typed}: expected numbers from 1 to {_MOST_THREADS} with commas, such as 1,2,4")
    return counts


def _evaluate_photos(
    model: str,
    folder: str,
    split: Literal["train", "val", "test"] | None,
    options: list[str],
    html: Path | None,
    timed: tuple[int, ...],
    *,
    as_json: bool,
) -> None:
    """Measure a model on a folder of photos, and say so."""
    content = _model_at(model)
    settings = _start_tensorflow()
    from trainer.evaluate_photos import evaluate_photos

    how: dict[str, Any] = {"split": split, "options": options, "threads": settings.threads or 1}
    how["timed_threads"] = timed
    found = evaluate_photos(content, folder, shown=model, **how)
    if html is not None:
        html.write_text(found.page(), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        typer.echo(
            printable_lines(f"{_table({found.description.form or 'model': found.row})}\n\n{_classes(found.row)}")
        )
    for remark in found.remarks:
        typer.echo(printable(remark), err=True)
    if html is not None:
        typer.echo(printable(f"the page is in {html}"), err=True)


def _classes(row: "Mapping[str, Any]") -> str:
    """A line for each class: objects, AP50 with its interval, AP."""
    lines = [f"{'class':24}{'objects':>9}{'AP50 % (95 %)':>24}{'AP %':>8}"]
    for name, found in row["per_class"].items():
        if found["ap50"] is None:
            lines.append(f"{name:24}{found['objects']:9,}{'-':>24}{'-':>8}")
        else:
            sure = _percents(found["ap50"], found["ap50_interval"])
            lines.append(f"{name:24}{found['objects']:9,}{sure:>24}{100 * found['ap']:8.1f}")
    return "\n".join(lines)


@app.command(name="export", hidden=_NEEDS_MORE)
def export_command(
    run: Annotated[str, typer.Argument(help="A run of the store that has trained weights.")],
    store: Store = None,
    quantize: Annotated[
        Literal["ptq", "qat"] | None,
        typer.Option(help="How int8 is made: ptq calibrates, qat fine-tunes first. Default: as the run asked."),
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="The checkpoint of this step. Default: the best.")] = None,
    max_drop: Annotated[float | None, typer.Option(min=0, help="Points of mAP50 that int8 may lose.")] = None,
    nms: Annotated[
        Literal["inside", "outside", "both"] | None,
        typer.Option(help="Suppression inside the files, outside (model_*_raw.tflite), or both. Default: as asked."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Export a run's weights again without training: all four forms, measured and judged as at the end of training.

    A run that the gate had refused is finished by an export that passes. A finished run keeps its models where the gate
    refuses. Exit code 0: the gate passed; 1: it refused the model, or an error.

    Example: voc2tflite export demo --store out/demo --quantize qat
    """
    storage = _storage_with(run, store)
    settings = _start_tensorflow()
    from shared.leasing.guard import Unguarded
    from trainer.inference.quiet import quiet_libraries
    from trainer.rerun import export_run

    changes: dict[str, Any] = {"max_drop": max_drop, "quantize": quantize, "nms": nms, "step": step}
    room: dict[str, Any] = {"cache_mb": settings.cache_mb, "copies": settings.shard_folder()}
    with quiet_libraries():
        exported = export_run(run, storage=storage, guard=Unguarded(), **changes, **room)
    typer.echo(json.dumps(exported.metrics) if as_json else _table(exported.metrics))
    for warning in exported.warnings:
        typer.echo(f"warning: {printable(warning)}", err=True)
    if exported.is_finished:
        typer.echo(f"run {run} is finished with these models", err=True)
    else:
        go_on = command.hint("resume", exported.job, store=storage)
        typer.echo(f"run {run} is not finished: it has not trained to its end; `{go_on}` goes on with it", err=True)


@app.command(name="compare", hidden=_NEEDS_MORE)
def compare_command(
    runs: Annotated[
        list[str], typer.Argument(help="Finished runs of the store; the others are held against the first.")
    ],
    store: Store = None,
    *,
    html: Annotated[Path | None, typer.Option(help="Write it as a page too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Finished runs side by side: settings that differ, figures, bytes, ms; by class, what is better on shared photos.

    Differences have a 95 % interval of a paired bootstrap. Also what int8 costs against float32 in each run.

    Example: voc2tflite compare before after --store out --html compared.html
    """
    from trainer.reporting.compare import against_first, compare_runs, comparison_table, paired_tables
    from trainer.reporting.compare_page import compare_page

    storage = _storage_with(runs[0], store)
    rows = compare_runs(runs, storage)
    pairs, why_not = against_first(rows, storage) if len(rows) > 1 else ([], [])
    if html is not None:
        html.write_text(compare_page(rows, pairs, why_not), encoding="utf-8")
    if as_json:
        against = {pair.second: pair.as_json() for pair in pairs}
        typer.echo(json.dumps([{**row.as_json(), "against_first": against.get(row.run)} for row in rows]))
    else:
        typer.echo(printable_lines("\n".join([comparison_table(rows), *([paired_tables(pairs)] if pairs else [])])))
    for line in why_not:
        typer.echo(printable(f"warning: {line}"), err=True)
    if html is not None:
        typer.echo(printable(f"the page is in {html}"), err=True)


@app.command(name="sizes", hidden=_NEEDS_MORE)
def sizes_command(
    backbone: Annotated[
        list[str] | None, typer.Option(help="conv, efficientnet_lite0, mobilenet_v2, …; may be given more than once.")
    ] = None,
    image_size: Annotated[int, typer.Option(min=32, help="Side of the pictures in pixels, a multiple of 32.")] = 320,
    classes: Annotated[int, typer.Option(min=1, help="Classes to tell apart.")] = 3,
    *,
    model: Annotated[list[str] | None, typer.Option(help="nano, small, medium; may be given more than once.")] = None,
    detail: Annotated[
        bool, typer.Option("--detail", help="Time of each kind of operator, memory and loading of the int8 files.")
    ] = False,
) -> None:
    """What each size of the detector costs on this machine: parameters, multiply-adds, bytes, milliseconds (1 thread).

    Example: voc2tflite sizes --backbone conv --detail
    """
    known: list[Backbone] = ["conv", "efficientnet_lite0", "mobilenet_v2", "mobilenet_v3_small"]
    _check_known("--backbone", backbone, known)
    _check_known("--model", model, _SIZES)
    if image_size % 32:
        raise OptionError(f"--image-size {image_size}: expected a multiple of 32")
    _quiet_tensorflow()
    from trainer.sizes import costs, machine

    typer.echo(f"{image_size} px, {classes} classes; {machine()}")
    typer.echo(f"{'backbone':20}{'model':8}{'parameters':>12}{'MMAC':>8}{'int8 kB':>9}{'float ms':>10}{'int8 ms':>9}")
    backbones = [name for name in known if not backbone or name in backbone]
    chosen = [size for size in _SIZES if not model or size in model]
    rows = iter(costs(backbones, chosen, image_size=image_size, classes=classes))
    while (row := _next_quietly(rows)) is not None:
        typer.echo(
            f"{row.backbone:20}{row.model:8}{row.parameters:12,}{row.macs / 1e6:8.0f}{row.int8_bytes / 1e3:9.0f}"
            f"{row.float32_ms:10.1f}{row.int8_ms:9.1f}"
        )
        if detail:
            for name, content in {"int8": row.int8, "int8_raw": row.int8_raw}.items():
                typer.echo(_detail(name, content, image_size))


def _detail(name: str, model: bytes, image_size: int) -> str:
    """Where a file's time and memory go: a line for each kind of operator, the costly ones first."""
    from trainer.inference.quiet import quiet_libraries
    from trainer.sizes import detail_of

    with quiet_libraries():
        found = detail_of(model, image_size)
    total = sum(ms for _, ms in found.operators.values())
    lines = [
        f"  {name}: loading {found.load_ms:.1f} ms, arena {found.arena_bytes / 1e3:,.0f} kB, "
        f"a picture {found.run_ms:.2f} ms; operators {_timed_by(found.no_profiler)} {total:.2f} ms:"
    ]
    lines += [
        f"    {kind:42}{count:5}{ms:9.3f} ms{100 * ms / total:7.1f} %" for kind, (count, ms) in found.operators.items()
    ]
    return "\n".join(lines)


def _timed_by(no_profiler: str | None) -> str:
    return "by LiteRT's profiler" if no_profiler is None else f"by themselves (no profiler: {no_profiler})"


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or "nothing"


def _table(metrics: "Mapping[str, Any]") -> str:
    lines = [f"{'form':12}{'mAP50 % (95 %)':>23}{'mAP % (95 %)':>23}{'bytes':>12}{'ms':>9}"]
    for form, row in metrics.items():
        shown = (f"{_percents(row[name], row[f'{name}_interval']):>23}" for name in ("map50", "map"))
        lines.append(f"{form:12}{''.join(shown)}{row['bytes']:12,}{_ms(row):>9}")
    row = metrics["int8"] if "int8" in metrics else next(iter(metrics.values()))
    return "\n".join([*lines, f"measured on {row['objects']} objects in {row['pictures']} pictures"])


def _ms(row: "Mapping[str, Any]") -> str:
    """Milliseconds on one thread, or by each number that was asked for."""
    asked = row.get("latency_ms", {"1": row["median_ms"]})
    if "gate" in row or len(asked) == 1:  # an export's table has those of one thread
        return f"{row['median_ms']:.2f}"
    return "  " + ", ".join(f"{count}: {ms:.2f}" for count, ms in asked.items())


def _percents(share: float, interval: "Sequence[float]") -> str:
    low, high = interval
    return f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def _check_known(option: str, typed: "Sequence[str] | None", known: "Sequence[str]") -> None:
    """Refuse a value of an option that may be given more than once: typer knows no choices for these."""
    for value in typed or ():
        if value not in known:
            raise OptionError(f"{option} {value}: expected one of {', '.join(known)}")


def _storage_with(run: str, store: str | None) -> "Storage":
    """The store, by default that of the settings, which holds `run`: looked at before TensorFlow's 15 s of imports."""
    from shared.jobs.identity import read_request
    from shared.jobs.paths import RunPaths
    from shared.settings import CommonSettings
    from shared.storage import Storage

    storage = Storage(store or CommonSettings().store)
    if not storage.exists(RunPaths(run).request):
        names = ", ".join(storage.list_names("runs")) or "none"
        raise PipelineError(f"{storage.root} holds no run {run!r} (there are: {names})")
    asked = read_request(storage, run)
    if asked is not None and not asked.has_model:
        raise PipelineError(f"run {run!r} belongs to an audit and has no model")
    return storage


def _next_quietly(rows: "Iterator[Cost]") -> "Cost | None":
    """The next row; the converter has a remark on each."""
    from trainer.inference.quiet import quiet_libraries

    with quiet_libraries():
        return next(rows, None)


def _start_tensorflow() -> "TrainerSettings":
    """Import TensorFlow, on as many threads as the settings say; the settings."""
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    _quiet_tensorflow()
    from trainer.run import use_threads

    use_threads(settings.threads)
    return settings


def _quiet_tensorflow() -> None:
    """Import TensorFlow without its remarks, which would bury the figures or the gate's word.

    No level of its log silences those of oneDNN, so they go nowhere; what cannot be imported still raises.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def main() -> None:
    """Run the trainer's commands."""
    command.run(app, prog_name="python -m trainer")


if __name__ == "__main__":
    main()
