"""The terminal as the producer writes to it: text is shown as it is, whatever names are in it."""

import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from shared.command import PROGRAM
from shared.text import printable_lines


class Terminal(Console):
    """A rich console that does not read text as markup, emoji or Python, and escapes control characters.

    Text of ours that is to be coloured is a `rich.text.Text`, or printed with `style`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print; with `soft_wrap`, and only at a terminal, sentences are broken between words, but commands never."""
        if soft_wrap and self.is_terminal:
            objects = tuple(self._broken_at_words(each) if isinstance(each, str) else each for each in objects)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def _broken_at_words(self, text: str) -> str:
        return "\n".join(map(self._sentence, printable_lines(text).split("\n")))

    def _sentence(self, line: str) -> str:
        if "`" in line or f"{PROGRAM} " in line:
            return line  # a command, to be copied as it is
        indent = line[: len(line) - len(line.lstrip())]
        fitted = textwrap.fill(
            line, self.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        return fitted or line

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string passes here before it is measured, and before rich removes some control characters."""
        return super().render_str(printable_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All output passes here, also a `Text`; only rich's own cursor movements stay as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))
