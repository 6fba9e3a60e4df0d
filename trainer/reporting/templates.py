"""Where the templates of pages and cards are, and how they show figures. Light: needs no TensorFlow or OpenCV."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2

from shared.command import PROGRAM
from shared.text import counted

_TEMPLATES: Final = Path(__file__).parent

_OPTION: Final = re.compile(r"--[a-z][a-z-]*")
# A command is on a line of its own.
_COMMAND: Final = re.compile(rf"^{PROGRAM} .*$", re.MULTILINE)


def measured(row: Mapping[str, Any], name: str, *, with_objects: bool = False) -> str:
    """`91.4 % (88.0 to 94.1, 26 objects)`: a figure of `metrics.json` in percent, with the interval in its row.

    A dash if it was measured on no object.
    """
    figure, interval, objects = row[name], row.get(f"{name}_interval"), row.get("objects")
    if figure is None or objects == 0:
        return "-"
    sure = [] if interval is None else [f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"]
    sure += [counted(objects, "object")] if with_objects and objects is not None else []
    return f"{100 * figure:.1f} %" + (f" ({', '.join(sure)})" if sure else "")


def measured_on(row: Mapping[str, Any], photo: str = "photo") -> str:
    """`42 test photos of 5 scenes`: what a row of `metrics.json` was measured on; `photo` is what one is called."""
    scenes = row.get("scenes")
    return counted(row["pictures"], photo) + (f" of {counted(scenes, 'scene')}" if scenes else "")


def points(percent: float, bounds: tuple[float, float] | None) -> str:
    """`91.4 % (88.0 to 94.1)`: a figure in percent with its interval, if it has one."""
    return f"{percent:.1f} %" + ("" if bounds is None else f" ({bounds[0]:.1f} to {bounds[1]:.1f})")


def _typeset(escaped: str) -> str:
    """Escaped text with commands set as code, and with options such as --max-minutes not broken at a hyphen."""
    whole = _OPTION.sub(r'<span class="option">\g<0></span>', str(escaped))
    return _COMMAND.sub(r"<code>\g<0></code>", whole)


def environment(*, is_html: bool) -> jinja2.Environment:
    """Jinja2's environment, which knows where the templates are and how they show numbers."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=is_html,  # noqa: S701 - the other template is Markdown
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["measured"] = measured
    made.filters["measured_on"] = measured_on
    made.filters["typeset"] = _typeset
    made.filters["counted"] = counted
    made.filters["points"] = points
    made.filters["percent"] = lambda value: "-" if value is None else f"{100 * value:.1f}"
    made.filters["size"] = lambda size_bytes: (
        f"{size_bytes / 1e6:.2f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"
    )
    return made
