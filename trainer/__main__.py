"""The trainer's commands: `export` a run again, `evaluate` its models, `predict` with one, `compare` runs and `sizes`.

`python -m trainer` has only these. TensorFlow is imported only by commands that need it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from shared import command
from shared.errors import OptionError
from shared.text import counted, printable, printable_lines
from trainer.cli import predict, sizes
from trainer.cli.predict import MOST_THREADS, model_at
from trainer.cli.session import NEEDS_MORE, Store, check_known, start_tensorflow, storage_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Modules without which no command works. If only these are installed (the extra `predict`), commands that need more are
# hidden.
NEEDS: Final = ("ai_edge_litert", "cv2", "numpy")
_FORMS: Final = ("float32", "float16", "dynamic", "int8")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What the trainer can do by hand: export, measure, predict, compare.",
)


@app.command(name="evaluate", hidden=NEEDS_MORE)
def evaluate_command(  # long: a line for each option
    run: Annotated[str, typer.Argument(metavar="RUN|MODEL", help="A run of the store, or an exported .tflite.")],
    folder: Annotated[
        str | None, typer.Argument(help="With a MODEL: photos with Pascal-VOC XML, as submit takes them.")
    ] = None,
    store: Store = None,
    split: Annotated[
        Literal["train", "val", "test"] | None,
        typer.Option(help="Default: the first of test, val, train with an object that counts; all photos of a FOLDER."),
    ] = None,
    form: Annotated[
        list[str] | None,
        typer.Option(help="Only these forms of a run; may be given more than once."),
    ] = None,
    *,
    html: Annotated[Path | None, typer.Option(help="With a FOLDER: also write a page with pictures.")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="With a FOLDER, as for submit: old=new.")] = None,
    voc_coords: Annotated[Literal["corner", "voc1"] | None, typer.Option(help="With a FOLDER, as for submit.")] = None,
    exif: Annotated[Literal["upright", "raw"] | None, typer.Option(help="With a FOLDER, as for submit.")] = None,
    difficult: Annotated[
        Literal["keep", "ignore", "drop"] | None, typer.Option(help="With a FOLDER, as for submit.")
    ] = None,
    background: Annotated[Literal["none", "orphans"] | None, typer.Option(help="With a FOLDER, as for submit.")] = None,
    threads: Annotated[
        str, typer.Option(help="Measure the time on this many CPU threads; several with commas, such as 1,2,4.")
    ] = "1",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a run's exported models on a split of its job, or any model on a folder of photos, through LiteRT.

    Example: voc2tflite evaluate demo --store out/demo --split val

    Without a job: voc2tflite evaluate model_int8.tflite ~/new-photos --html seen.html
    """
    reading: dict[str, Any] = {"rename": rename, "voc-coords": voc_coords, "exif": exif}
    reading |= {"difficult": difficult, "background": background}
    typed = [
        word
        for name, value in reading.items()
        for each in (value if isinstance(value, list) else [value] if value else [])
        for word in (f"--{name}", each)
    ]
    timed = _threads(threads)
    _require_page(html)
    if folder is not None:
        if form or store:
            raise OptionError(
                "a MODEL on a FOLDER takes no --store and no --form, as the file is one form: leave them out"
            )
        _evaluate_photos(run, folder, split, typed, html, timed, as_json=as_json)
        return
    if html and not typed and not run.endswith(".tflite"):
        raise OptionError(f"--html goes with a MODEL and a FOLDER; run {run} has its report.html in its folder")
    if run.endswith(".tflite") or typed or html:
        raise OptionError("expected a run of the store, or a MODEL and a FOLDER of photos to measure it on")
    check_known("--form", form, [f"{each}{raw}" for raw in ("", "_raw") for each in _FORMS])
    storage = storage_with(run, store)
    settings = start_tensorflow()
    from trainer.rerun import evaluate_run

    measured_by: dict[str, Any] = {"threads": settings.threads or 1, "copies": settings.shard_folder()}
    measured_by["timed_threads"] = timed
    metrics = evaluate_run(run, storage=storage, split=split, forms=form, **measured_by)
    typer.echo(json.dumps(metrics) if as_json else _table(metrics))


def _threads(typed: str) -> tuple[int, ...]:
    """The numbers in a text such as `1,2,4`.

    Raises:
        OptionError: The text is not of this form, or a number is out of range or given twice.
    """
    counts = tuple(int(word) if word.isdecimal() else 0 for word in typed.split(","))
    if not all(1 <= count <= MOST_THREADS for count in counts) or len(set(counts)) < len(counts):
        raise OptionError(f"--threads {typed}: expected numbers from 1 to {MOST_THREADS} with commas, such as 1,2,4")
    return counts


def _require_page(html: Path | None) -> None:
    """Check that the page can be written, before anything is measured.

    Raises:
        OptionError: Its folder is absent, or `--html` itself is a folder.
    """
    if html is None:
        return
    if html.is_dir():
        raise OptionError(
            f"--html {html}: expected a file, found a folder; name a file in it, such as {html}/page.html"
        )
    if not html.parent.is_dir():
        raise OptionError(f"--html {html}: there is no folder {html.parent}; make it first, or name another")


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
    """Measure a model on a folder of photos, and print the results."""
    content = model_at(model)
    settings = start_tensorflow()
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
        shown = name if len(name) < 24 else f"{name[:22]}…"
        if found["ap50"] is None:
            lines.append(f"{shown:24}{found['objects']:9,}{'-':>24}{'-':>8}")
        else:
            sure = _percents(found["ap50"], found["ap50_interval"])
            lines.append(f"{shown:24}{found['objects']:9,}{sure:>24}{100 * found['ap']:8.1f}")
    return "\n".join(lines)


@app.command(name="export", hidden=NEEDS_MORE)
def export_command(
    run: Annotated[str, typer.Argument(help="A run of the store that has trained weights.")],
    store: Store = None,
    quantize: Annotated[
        Literal["ptq", "qat"] | None,
        typer.Option(help="How int8 is made: ptq calibrates, qat fine-tunes first. Default: as the run was asked for."),
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Export this step's checkpoint. Default: the best.")] = None,
    max_drop: Annotated[float | None, typer.Option(min=0, help="Points of mAP50 that int8 may lose.")] = None,
    nms: Annotated[
        Literal["inside", "outside", "both"] | None,
        typer.Option(help="Where NMS is: inside the files, outside (model_*_raw.tflite), or both. Default: as before."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Export a run's weights again without training: all four forms, measured and judged as at the end of training.

    If the gate had refused the run and the new export passes, the run is finished. If the gate refuses the new export
    of a finished run, the run keeps its models. Exit code 0: the gate passed; 1: it refused the model, or an error.

    Example: voc2tflite export demo --store out/demo --quantize qat
    """
    storage = storage_with(run, store)
    settings = start_tensorflow()
    from shared.jobs.identity import words_of
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
        go_on = command.hint("resume", *words_of(storage, run), store=storage)
        typer.echo(f"run {run} is not finished: it has not trained to its end; `{go_on}` goes on with it", err=True)


@app.command(name="compare", hidden=NEEDS_MORE)
def compare_command(
    runs: Annotated[
        list[str], typer.Argument(help="Finished runs of the store; the others are compared with the first.")
    ],
    store: Store = None,
    *,
    html: Annotated[Path | None, typer.Option(help="Also write it as a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare finished runs: settings that differ, figures, bytes, ms; and each class on the photos that both measured.

    Differences have a 95 % interval from a paired bootstrap. Also shown: what int8 costs against float32 in each run.

    Example: voc2tflite compare before after --store out --html compared.html
    """
    from trainer.reporting.compare import against_first, compare_runs, comparison_table, paired_tables
    from trainer.reporting.compare_page import compare_page

    _require_page(html)
    storage = storage_with(runs[0], store)
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


def _table(metrics: "Mapping[str, Any]") -> str:
    from trainer.reporting.templates import measured_on

    lines = [f"{'form':12}{'mAP50 % (95 %)':>23}{'mAP % (95 %)':>23}{'bytes':>12}{'ms':>9}"]
    for form, row in metrics.items():
        known = [_percents(row[name], row[f"{name}_interval"]) for name in ("map50", "map")]
        shown = (f"{sure if row['objects'] else '-':>23}" for sure in known)
        lines.append(f"{form:12}{''.join(shown)}{row['bytes']:12,}{_ms(row):>9}")
    row = metrics["int8"] if "int8" in metrics else next(iter(metrics.values()))
    return "\n".join([*lines, f"measured on {counted(row['objects'], 'object')} in {measured_on(row, 'picture')}"])


def _ms(row: "Mapping[str, Any]") -> str:
    """Milliseconds on one thread, or for each number of threads that was asked for."""
    asked = row.get("latency_ms", {"1": row["median_ms"]})
    if "gate" in row or len(asked) == 1:  # an export's table shows only one thread
        return f"{row['median_ms']:.2f}"
    return "  " + ", ".join(f"{count}: {ms:.2f}" for count, ms in asked.items())


def _percents(share: float, interval: "Sequence[float]") -> str:
    low, high = interval
    return f"{100 * share:.1f} ({100 * low:.1f} to {100 * high:.1f})"


app.add_typer(predict.app)
app.add_typer(sizes.app)


def main() -> None:
    """Run the trainer's commands."""
    command.run(app, prog_name="python -m trainer")


if __name__ == "__main__":
    main()
