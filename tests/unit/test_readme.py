"""README's commands exist with those options, its table of settings is the classes' own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.settings import ProducerSettings
from shared.settings import CommonSettings
from trainer.settings import TrainerSettings
from worker.settings import WorkerSettings

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PROGRAMS = ("producer", "worker", "trainer")


def command_lines() -> Iterator[list[str]]:
    """The words of every command in a code block, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", README, re.S):
        for line in block.splitlines():
            words = line.split("#")[0].split()
            if words:
                yield words


def program_lines() -> list[list[str]]:
    """The commands of our own programs: program, subcommand, then the rest."""
    found = []
    for words in command_lines():
        plain = [word.removeprefix(".venv/bin/") for word in words]
        if plain[:2] == ["python", "-m"]:
            plain = plain[2:]
        if plain[:5] == ["docker", "compose", "run", "--rm", "producer"]:
            plain = plain[4:]
        if plain[0] in PROGRAMS and len(plain) > 1:
            found.append(plain)
    return found


@pytest.mark.parametrize("words", program_lines(), ids=" ".join)
def test_command_of_the_readme_exists_with_its_options(words: list[str]) -> None:
    program, subcommand, *rest = words
    help_text = subprocess.run(
        [sys.executable, "-m", program, subcommand, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin", "PYTHONPATH": str(REPOSITORY)},
    ).stdout
    for option in (word for word in rest if word.startswith("--")):
        assert option.split("=")[0] in help_text


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = {words[1] for words in command_lines() if words[0] == "make"}
    assert {"demo", "test", "lint", "faults", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def settings_table() -> str:
    """README's table of settings, from the classes."""
    rows = ["| variable | default | of | what |", "|---|---|---|---|"]
    common = CommonSettings.model_fields
    classes = (
        ("all", CommonSettings),
        ("producer", ProducerSettings),
        ("worker", WorkerSettings),
        ("trainer", TrainerSettings),
    )
    for service, settings in classes:
        for name, field in settings.model_fields.items():
            if service != "all" and name in common:
                continue
            default = "" if field.default is None else str(field.default)
            shown = f"`{default}`" if default else ""
            rows.append(f"| `VOC_{name.upper()}` | {shown} | {service} | {field.description} |")
    return "\n".join(rows)


def test_table_of_settings_is_printed_from_the_classes() -> None:
    assert settings_table() in README


if __name__ == "__main__":
    print(settings_table())
