"""The terminal as the producer writes to it: text as it is, whatever names are in it."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from shared.text import printable_lines


class Terminal(Console):
    """A rich console that takes no text for markup, emoji or Python, and escapes control characters.

    What of our own text wants colour is a `rich.text.Text`, or printed with `style`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string passes here before it is measured, and before rich takes some control characters away."""
        return super().render_str(printable_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Everything passes here on its way out, a `Text` too; only rich's own moves of the cursor stay as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))
