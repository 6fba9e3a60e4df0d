"""The table in `tests/README.md` is true: every test that it names exists, and every rule names one."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = [line for line in (TESTS / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
RULES = [line for line in ROWS if not line.startswith("| rule |")]


def test_every_named_test_exists() -> None:
    named = [name for line in RULES for name in re.findall(r"`(tests/[^`]+::[^`]+)`", line)]
    assert len(named) > 80
    missing = []
    for name in named:
        path, _, function = name.partition("::")
        text = (TESTS.parent / path).read_text(encoding="utf-8")
        if not re.search(rf"^def {function}\(", text, re.MULTILINE):
            missing.append(name)
    assert missing == []


def test_every_rule_names_a_test() -> None:
    assert len(RULES) > 40
    assert [line for line in RULES if "::" not in line] == []
