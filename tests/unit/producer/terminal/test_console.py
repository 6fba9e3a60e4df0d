"""What the terminal is sent: the text as it is, without markup and control characters."""

import re
from io import StringIO

import pytest
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from producer.terminal.console import Terminal
from producer.terminal.progress import Screen

# Names the window, rings the bell, goes to the line's beginning, and begins a colour in one character.
HOSTILE = "a\x1b]0;owned\x07b\rc\x9b31md"
SHOWN = r"a\x1b]0;owned\x07b\rc\x9b31md"


def table(cell: RenderableType) -> Table:
    made = Table()
    made.add_column("title", overflow="fold")
    made.add_row(cell)
    return made


def sent(what: RenderableType) -> str:
    """What a terminal of 100 columns is sent for this."""
    out = StringIO()
    Terminal(file=out, width=100, force_terminal=True, color_system="truecolor").print(what)
    return out.getvalue()


def letters(what: RenderableType) -> str:
    """What a terminal is sent, without the colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", sent(what))


@pytest.mark.parametrize("text", ["[/x]", "[bold]a[/bold]", "[a](b)", "\\[/x]", ":cat:", "größe 写真"])
def test_text_is_printed_as_it_is(text: str) -> None:
    for what in (text, Text(text), table(text)):
        assert text in sent(what)


def test_control_characters_are_escaped_in_strings_and_tables() -> None:
    for what in (HOSTILE, table(HOSTILE)):
        assert SHOWN in sent(what)


def test_control_characters_of_a_text_do_not_reach_the_terminal() -> None:
    for what in (Text(HOSTILE, style="red"), table(Text(HOSTILE))):
        assert not set(letters(what)) & set("\x1b\x07\r\x9b")
        assert r"a\x1b]0;owned" in letters(what)


def test_a_table_is_as_wide_as_what_it_shows() -> None:
    assert len({len(line) for line in letters(table("\x1b\x1b\x1b")).splitlines()}) == 1


def test_texts_of_several_lines_keep_them_and_colours_are_ours() -> None:
    assert sent("one\ntwo") == "one\ntwo\n"
    assert sent(Text("red", style="red")) == "\x1b[31mred\x1b[0m\n"


def test_progress_shows_facts_as_they_are() -> None:
    out = StringIO()
    with Screen(Terminal(file=out, width=160, force_terminal=True, color_system=None)) as screen:
        screen.stage("shards", 1, 4, f"last error: [/x] {HOSTILE}")
    frame = out.getvalue().split("\x1b[2K")[-1]
    assert "last error: [/x] a\\x1b]0;owned" in frame
    assert "\x07" not in frame
    assert "\x1b]" not in frame
