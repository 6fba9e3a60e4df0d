"""Long lines on a terminal of 40 columns, in a pipe, and those that are copied."""

import io

import pytest

from producer.terminal.console import Terminal

SENTENCE = "  train 15000, val 3000 and test 2000 images, 83,942 objects read and kept"


def printed(text: str, *, is_terminal: bool) -> list[str]:
    out = io.StringIO()
    Terminal(file=out, width=40, force_terminal=is_terminal, color_system=None).print(text, soft_wrap=True)
    return out.getvalue().splitlines()


def test_a_sentence_is_broken_between_words_at_a_terminal() -> None:
    assert printed(SENTENCE, is_terminal=True) == [
        "  train 15000, val 3000 and test 2000",
        "  images, 83,942 objects read and kept",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "more of it: `voc2tflite status a-job-of-a-long-name --store out`",
        "voc2tflite submit --job a-job-of-a-long-name --max-minutes 3",
        "→ /a/path/without/a/blank/that/is/longer/than/the/terminal/is/wide",
        "",
    ],
)
def test_a_line_with_a_command_is_never_broken(line: str) -> None:
    assert "".join(printed(line, is_terminal=True)).replace("→", "→ ").replace("→  ", "→ ") == line


def test_a_pipe_gets_whole_lines() -> None:
    assert printed(f"{SENTENCE}\nsecond", is_terminal=False) == [SENTENCE, "second"]
