"""The commands of docs/recipes.md exist with those options."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8")


def producer_lines() -> list[list[str]]:
    """The words of each command of the producer, from its subcommand on."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", RECIPES, re.S):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            places = [place for place, word in enumerate(words) if word in ("producer", ".venv/bin/producer")]
            if places:
                found.append(words[places[0] + 1 :])
    return found


def test_the_page_has_recipes() -> None:
    assert [words[0] for words in producer_lines()] == ["lint", "submit", "submit", "submit"]
    assert "kaggle datasets download" in RECIPES


@pytest.mark.parametrize("subcommand", ["lint", "submit"])
def test_commands_of_the_recipes_exist_with_their_options(subcommand: str) -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "producer", subcommand, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin", "PYTHONPATH": str(REPOSITORY)},
    ).stdout
    asked = {word.split("=")[0] for words in producer_lines() if words[0] == subcommand for word in words}
    for option in (word for word in asked if word.startswith("--")):
        assert option in help_text
