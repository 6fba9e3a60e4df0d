"""`python -m trainer`: `export` a run again, `evaluate` its models, `predict` with one, compare `sizes`.

TensorFlow is imported only by what needs it.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shared.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.model import Backbone

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Store = Annotated[str, typer.Option(help="Where jobs and runs are kept: a folder, or an fsspec URL.")]


@app.callback()
def _root() -> None:
    """What the trainer knows, by hand: exporting, measuring, predicting, comparing sizes."""


@app.command(name="predict")
def predict_command(
    model: Annotated[Path, typer.Argument(help="An exported .tflite.", exists=True, dir_okay=False)],
    sources: Annotated[list[str], typer.Argument(help="Pictures, folders, videos, or the index of a camera (0).")],
    out: Annotated[Path | None, typer.Option(help="Folder for drawn pictures and detections.json.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print COCO JSON instead of a line a picture.")] = False,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Least score of a detection.")] = 0.4,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many frames of a video or camera.")] = None,
) -> None:
    """Look for objects in pictures; needs numpy, OpenCV and LiteRT only.

    Example: python -m trainer predict out/demo/runs/demo/model_int8.tflite photos/ --out seen
    """
    from trainer.predict import Detector
    from trainer.sources import SeenWriter, frames

    detector = Detector(model, threads)
    writer = SeenWriter(labels=detector.labels, folder=out)
    for source in sources:
        for frame in frames(source, limit):
            seen = detector.detect(frame.pixels).above(threshold)
            writer.add(frame, seen)
            if not as_json:
                typer.echo(f"{frame.name}: {_counted([detector.labels[at - 1] for at in seen.class_ids])}")
    writer.finish()
    if as_json:
        typer.echo(json.dumps(writer.coco(), ensure_ascii=False))
    if not writer.images:
        raise PipelineError("no picture was found")


@app.command(name="evaluate")
def evaluate_command(
    run: Annotated[str, typer.Argument(help="A run of the store.")],
    store: Store = "out",
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    form: Annotated[list[str] | None, typer.Option(help="Only these forms; may be given more than once.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure the exported models of a run on a split, through LiteRT.

    Example: python -m trainer evaluate demo --store out/demo --split val
    """
    from shared.storage import Storage
    from trainer.rerun import evaluate_run

    metrics = evaluate_run(run, storage=Storage(store), split=split, forms=form)
    typer.echo(json.dumps(metrics) if as_json else _table(metrics))


@app.command(name="export")
def export_command(
    run: Annotated[str, typer.Argument(help="A run of the store that has trained weights.")],
    store: Store = "out",
    quantize: Annotated[
        Literal["ptq", "qat"] | None,
        typer.Option(help="How int8 is made: ptq calibrates, qat fine-tunes first. Default: as the run asked."),
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="The checkpoint of this step. Default: the best.")] = None,
    max_drop: Annotated[float | None, typer.Option(min=0, help="Points of mAP50 that int8 may lose.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Export a run's weights again without training: all four forms, measured and judged as at the end of training.

    Exit code 0: the gate passed; 1: it refused the model, or an error.

    Example: python -m trainer export demo --store out/demo --quantize qat
    """
    from shared.guard import Unguarded
    from shared.storage import Storage
    from trainer.rerun import Again, export_run

    again = Again(max_drop=max_drop, quantize=quantize, step=step)
    metrics = export_run(run, storage=Storage(store), again=again, guard=Unguarded())
    typer.echo(json.dumps(metrics) if as_json else _table(metrics))


@app.command(name="compare")
def compare_command(
    runs: Annotated[list[str], typer.Argument(help="Finished runs of the store, e.g. the same with other seeds.")],
    store: Store = "out",
) -> None:
    """Int8 against float32 in several finished runs: mAP50, mAP, bytes, time.

    Example: python -m trainer compare bccd-0 bccd-1 bccd-2 --store out
    """
    from shared.storage import Storage
    from trainer.compare import compare_runs, comparison_table

    typer.echo(comparison_table(compare_runs(runs, Storage(store))))


@app.command(name="sizes")
def sizes_command(
    backbone: Annotated[
        list[str] | None, typer.Option(help="conv, mobilenet_v2, mobilenet_v3_small; may be given more than once.")
    ] = None,
    image_size: Annotated[int, typer.Option(min=32, help="Side of the pictures in pixels, a multiple of 32.")] = 320,
    classes: Annotated[int, typer.Option(min=1, help="Classes to tell apart.")] = 3,
) -> None:
    """What each size of the detector costs on this machine: parameters, multiply-adds, bytes, milliseconds (1 thread).

    Example: python -m trainer sizes --backbone conv
    """
    from trainer.sizes import costs, machine

    known: list[Backbone] = ["conv", "mobilenet_v2", "mobilenet_v3_small"]
    unknown = sorted(set(backbone or ()) - set(known))
    if image_size % 32 or unknown:
        found = f"--backbone {unknown[0]}" if unknown else f"--image-size {image_size}"
        raise PipelineError(f"{found}: expected one of {', '.join(known)}, and a size that is a multiple of 32")
    typer.echo(f"{image_size} px, {classes} classes; {machine()}")
    typer.echo(f"{'backbone':20}{'model':8}{'parameters':>12}{'MMAC':>8}{'int8 kB':>9}{'float ms':>10}{'int8 ms':>9}")
    backbones = [name for name in known if not backbone or name in backbone]
    for row in costs(backbones, ["nano", "small", "medium"], image_size=image_size, classes=classes):
        typer.echo(
            f"{row.backbone:20}{row.model:8}{row.parameters:12,}{row.macs / 1e6:8.0f}{row.int8_bytes / 1e3:9.0f}"
            f"{row.float32_ms:10.1f}{row.int8_ms:9.1f}"
        )


def _counted(names: list[str]) -> str:
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names))) or "nothing"


def _table(metrics: "Mapping[str, Any]") -> str:
    lines = [f"{'form':9}{'mAP50':>8}{'mAP':>8}{'bytes':>12}{'ms':>9}"]
    for form, row in metrics.items():
        median = f"{row['median_ms']:9.2f}" if "median_ms" in row else f"{'-':>9}"
        lines.append(f"{form:9}{100 * row['map50']:8.2f}{100 * row['map']:8.2f}{row['bytes']:12,}{median}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line; what went wrong is one sentence and an exit code."""
    # Read when TensorFlow is imported: its remarks would bury the figures, or the gate's word.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        app(prog_name="python -m trainer")
    except PipelineError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from error
    except ModuleNotFoundError as error:
        # Where only `predict` is installed, which is a way to install it.
        typer.echo(f"error: {error}; this command needs more than predict: pip install '.[trainer]'", err=True)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
