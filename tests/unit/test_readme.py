"""Commands in README and docs are read by the real programs' parsers: each command exists, with those options."""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
# `voc2tflite` is made of the commands of these three; `python -m PROGRAM` has its own.
PROGRAMS = ("producer", "worker", "trainer")
# Words that stand for a command, or cut one short.
UNSAID = ("COMMAND", "…", "...")


def sh_lines(text: str) -> Iterator[str]:
    """Every line of a block of shell commands, without its comment."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        yield from (line.split(" #")[0].strip() for line in block.splitlines() if not line.startswith("#"))


def inline_code(text: str) -> Iterator[str]:
    """Every piece of code in a sentence or table, on one line."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))


def all_commands() -> list[tuple[str, str]]:
    """Page and command, for everything that looks like one."""
    found = []
    for page in PAGES:
        text, name = page.read_text(encoding="utf-8"), page.relative_to(REPOSITORY).as_posix()
        found += [(name, command) for source in (sh_lines, inline_code) for command in source(text) if command]
    return found


def our_words(command: str) -> list[str] | None:
    """A command of ours as `program, subcommand, rest`, the program empty for `voc2tflite`; None: not one of ours."""
    if any(word in command for word in UNSAID):
        return None
    words = command.removeprefix(".venv/bin/").split()
    for service in ("producer", "worker"):
        if words[:5] == ["docker", "compose", "run", "--rm", service]:
            words = words[4:] if service == "producer" else words[5:]
    if words[:2] == ["python", "-m"]:
        words = words[2:]
    if len(words) < 2 or words[0] not in ("voc2tflite", *PROGRAMS) or words[1].startswith("-"):
        return None
    return ["" if words[0] == "voc2tflite" else words[0], *words[1:]]


OURS = sorted({(page, command) for page, command in all_commands() if our_words(command) is not None})


@cache
def commands_of(program: str) -> dict[str, Any]:
    """Every command of a program by name."""
    group: Any = typer.main.get_command(import_module(f"{program}.__main__").app)
    return dict(group.commands)


def the_command(program: str, name: str) -> Any:
    """The click command `name` of `program`, or of whichever program has it."""
    found = [commands_of(one)[name] for one in ([program] if program else PROGRAMS) if name in commands_of(one)]
    assert len(found) == 1, f"no program has the command {name!r}, or several have"
    return found[0]


@pytest.mark.parametrize(("page", "command"), OURS)
def test_command_of_the_documents_is_one_that_its_program_reads(page: str, command: str) -> None:
    words = our_words(command)
    assert words is not None
    program, name, *rest = words
    known = the_command(program, name)
    context = known.context_class(known, info_name=name)
    # Raises for an option that does not exist, or that lacks its value. Types are not looked at: ~/photos is nowhere.
    given, left, _ = known.make_parser(context).parse_args(list(rest))
    assert left == []
    if rest and "--help" not in rest:  # a sentence may name a command alone
        needed = [one.name for one in known.params if one.param_type_name == "argument" and one.required]
        assert all(given.get(one) for one in needed), f"{name} needs {', '.join(map(str, needed))}"


def test_an_option_that_does_not_exist_is_seen() -> None:
    known = the_command("", "submit")
    with pytest.raises(Exception, match="--no-such-option"):
        known.make_parser(known.context_class(known)).parse_args(["photos", "--no-such-option"])


def test_readme_shows_the_first_hour() -> None:
    shown = {words[1] for page, command in OURS if page == "README.md" and (words := our_words(command))}
    assert {"lint", "submit", "inspect", "predict", "status", "retry", "doctor", "rm"} <= shown


def test_the_pictures_of_readme_are_small_and_the_first_is_made_by_a_command_that_readme_names() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    names = ("demo-detections", "bccd-first-doubts", "page-findings", "raccoon-detections")
    assert pictures == [f"docs/{name}.jpg" for name in names]
    assert all(0 < (REPOSITORY / picture).stat().st_size <= 300_000 for picture in pictures)
    # The file of the report that it is, made by the first command of the page.
    assert "`out/demo/runs/demo/plots/detections.jpg`" in text
    assert text.index("make demo") < text.index("plots/detections.jpg")


def test_recipes_show_a_data_set_from_its_download_to_its_model() -> None:
    text = (REPOSITORY / "docs/recipes.md").read_text(encoding="utf-8")
    assert "kaggle datasets download" in text
    blocks = [words[1] for command in sh_lines(text) if (words := our_words(command))]
    road = ["submit", "audit", "audit", "lint", "submit", "compare", "predict", "evaluate"]
    again = ["evaluate", "submit", "compare"]
    devices = ["export", "evaluate", "sizes"]
    assert blocks == ["lint", *["submit"] * 6, "compare", *road, *again, *devices, "predict", "predict"]


def test_make_targets_of_the_documents_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = {command.split()[1] for _, command in all_commands() if re.match(r"make [a-z]", command)}
    assert {"demo", "test", "lint", "faults", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_modules_and_markers_of_the_documents_exist() -> None:
    markers = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").split("markers = [")[1].split("]\n")[0]
    for page, command in all_commands():
        for module in re.findall(r"python -m (tests[a-z_.]*)", command):
            assert find_spec(module) is not None, f"{page}: {command}"
        for marker in re.findall(r"pytest .*?-m ([a-z]+)", command):
            assert f'"{marker}:' in markers, f"{page}: {command}"
