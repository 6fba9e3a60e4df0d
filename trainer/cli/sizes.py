"""`sizes`: what each size of the detector costs on this machine."""

from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from shared.errors import OptionError
from shared.specs.training import Backbone
from shared.text import counted
from trainer.cli.session import NEEDS_MORE, check_known, quiet_tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.network.backbone import Size
    from trainer.sizes import Cost

app = typer.Typer()
_SIZES: Final[tuple["Size", ...]] = ("nano", "small", "medium")
_BACKBONES: Final[tuple[Backbone, ...]] = get_args(Backbone)


@app.command(name="sizes", hidden=NEEDS_MORE)
def sizes_command(
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="conv, efficientnet_lite0, efficientnet_lite2, … (default: all); may be given more than once."
        ),
    ] = None,
    image_size: Annotated[int, typer.Option(min=32, max=4096, help="Side of the pictures, a multiple of 32.")] = 320,
    classes: Annotated[int, typer.Option(min=1, help="Number of classes.")] = 3,
    *,
    model: Annotated[
        list[str] | None, typer.Option(help="nano, small, medium (default: all); may be given more than once.")
    ] = None,
    detail: Annotated[
        bool, typer.Option("--detail", help="Time of each kind of operator, memory and loading of the int8 files.")
    ] = False,
) -> None:
    """Measure what each detector size costs on this machine: parameters, multiply-adds, bytes, milliseconds (1 thread).

    Example: voc2tflite sizes --backbone conv --detail
    """
    check_known("--backbone", backbone, _BACKBONES)
    check_known("--model", model, _SIZES)
    if image_size % 32:
        raise OptionError(f"--image-size {image_size}: expected a multiple of 32")
    quiet_tensorflow()
    from trainer.sizes import costs, machine

    typer.echo(f"{image_size} px, {counted(classes, 'class', 'classes')}; {machine()}")
    typer.echo(f"{'backbone':26}{'model':8}{'parameters':>12}{'MMAC':>8}{'int8 kB':>9}{'float ms':>10}{'int8 ms':>9}")
    backbones = [name for name in _BACKBONES if not backbone or name in backbone]
    chosen = [size for size in _SIZES if not model or size in model]
    rows = iter(costs(backbones, chosen, image_size=image_size, classes=classes))
    while (row := _next_quietly(rows)) is not None:
        typer.echo(
            f"{row.backbone:26}{row.model:8}{row.parameters:12,}{row.macs / 1e6:8.0f}{row.int8_bytes / 1e3:9.0f}"
            f"{row.float32_ms:10.1f}{row.int8_ms:9.1f}"
        )
        if detail:
            for name, content in {"int8": row.int8, "int8_raw": row.int8_raw}.items():
                typer.echo(_detail(name, content, image_size))


def _detail(name: str, model: bytes, image_size: int) -> str:
    """Where a file's time and memory go: a line for each kind of operator, the most expensive first."""
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


def _next_quietly(rows: "Iterator[Cost]") -> "Cost | None":
    """The next row, without the messages that the converter prints for each."""
    from trainer.inference.quiet import quiet_libraries

    with quiet_libraries():
        return next(rows, None)
