"""Documents are short, what they link to and name exists, and the version is the same everywhere."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from shared import __version__
from tests import settings_page

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
        *(REPOSITORY / "docs").rglob("*.md"),
    ]
)
DECISIONS = sorted((REPOSITORY / "docs/decisions").glob("[0-9]*.md"))
MEASUREMENTS = sorted((REPOSITORY / "docs/measurements").glob("[a-z]*.md"))
INDEX = REPOSITORY / "docs/decisions/README.md"
MOST_LINES_README = 160
MOST_LINES_DECISION = 25
# What a path of this repository begins with; paths of the store, of other projects and of shells do not.
ROOTS = ("producer", "worker", "trainer", "shared", "tests", "docs", "requirements", ".ci", ".github")
STATUSES = ("accepted", "superseded", "dropped")
# A citation of what is no file of the repository, spelled so that this line is none itself.
FOREIGN = re.compile(
    r"\bDECISIONS\b|\b(?:DESIGN|VOC|TRAINER|FAULTS|MEASURED|HOUSE|STYLE|PRETRAINED)\.md\b|\bD-[a-z]{2}[a-z-]+"
)


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def prose_of(path: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", text_of(path), flags=re.S)


@cache
def names_of_tests() -> frozenset[str]:
    """Names of all tests, and of all modules of tests."""
    files = list((REPOSITORY / "tests").rglob("*.py"))
    names = {name for file in files for name in re.findall(r"^ *(?:async )?def (test_\w+)", text_of(file), re.M)}
    return frozenset(names | {file.stem for file in files})


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: Path) -> Iterator[str]:
    yield from re.findall(r"\]\(([^)\s]+)\)", prose_of(page))


def code_of(page: Path) -> Iterator[str]:
    """Every piece of code in a sentence or a table."""
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose_of(page)))


def test_readme_is_short() -> None:
    assert len(text_of(REPOSITORY / "README.md").splitlines()) <= MOST_LINES_README


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_says_what_it_must(decision: Path) -> None:
    text = text_of(decision)
    assert len(text.splitlines()) <= MOST_LINES_DECISION
    assert re.match(rf"# {decision.name[:4]}\. \S", text)
    status = re.search(r"^- Status: (\w+)$", text, re.M)
    assert status is not None
    assert status[1] in STATUSES
    assert re.search(r"^- Date: \d{4}-\d\d-\d\d$", text, re.M)
    assert re.search(r"^- Superseded by: \S", text, re.M)
    assert (status[1] == "superseded") == (re.search(r"^- Superseded by: (?!nothing|in part)", text, re.M) is not None)
    for part in ("Context", "Decision", "Evidence", "Cost"):
        assert re.search(rf"^\*\*{part}\.\*\*\s\S", text, re.M), part


def test_decisions_are_numbered_without_a_gap_and_all_in_the_index() -> None:
    assert [int(decision.name[:4]) for decision in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    rows = {
        f"| [{decision.name[:4]}]({decision.name}) | {_field(decision, 'Called')} | "
        f"{text_of(decision).splitlines()[0][8:]} | {_field(decision, 'Status')} |"
        for decision in DECISIONS
    }
    assert {line for line in text_of(INDEX).splitlines() if line.startswith("| [")} == rows


def _field(decision: Path, name: str) -> str:
    found = re.search(rf"^- {name}: (.*)$", text_of(decision), re.M)
    assert found is not None, f"{decision.name} has no {name}"
    return found[1]


@pytest.mark.parametrize("page", MEASUREMENTS, ids=lambda path: path.stem)
def test_measurements_name_command_and_date(page: Path) -> None:
    text = text_of(page)
    assert re.search(r"\b2026-\d\d-\d\d\b", text)
    assert page.stem == "foundations" or re.search(r"`(?:VOC_\S+ )?(?:make|python|pytest|voc2tflite) ", text)
    assert f"]({page.name})" in text_of(page.parent / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_and_tests_named_by_a_page_exist(page: Path) -> None:
    for code in code_of(page):
        for word in code.split():
            path, _, test = word.strip("(),.;:").partition("::")
            if path.split("/")[0] in ROOTS and "/" in path and "<" not in path and "…" not in path:
                found = list(REPOSITORY.glob(path + ("*" if re.fullmatch(r"docs/decisions/\d{4}", path) else "")))
                assert found, word
                assert not test or f"def {test.partition('[')[0]}(" in text_of(found[0]), word
            elif re.fullmatch(r"test_\w+(\[.*\])?", path):
                assert path.partition("[")[0] in names_of_tests(), word


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_in_a_page_is_closed(page: Path) -> None:
    # One open mark would turn the sense of all that follow, also in the tests above.
    for paragraph in prose_of(page).split("\n\n"):
        assert paragraph.count("`") % 2 == 0, paragraph


def test_every_page_is_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [REPOSITORY / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            links = (link.partition("#")[0] for link in links_of(page) if not link.startswith("http"))
            ahead += [(page.parent / link).resolve() for link in links if link]
    assert [name_of(page) for page in PAGES if page not in reached] == []


def code_and_configuration() -> Iterator[Path]:
    """Files that cite documents: code, scripts, containers, settings; not the documents, data and this file."""
    yield from (REPOSITORY / name for name in ("Makefile", "pyproject.toml", ".env.example", ".ci/run"))
    yield from REPOSITORY.glob("*.yml")
    for folder in ("producer", "worker", "trainer", "shared", "tests"):
        for kind in ("*.py", "*.lua", "*.acl", "*.j2", "*.yml", "*Dockerfile"):
            yield from (path for path in (REPOSITORY / folder).rglob(kind) if path != Path(__file__))


def test_code_cites_only_files_of_the_repository() -> None:
    numbers = {decision.name[:4] for decision in DECISIONS}
    for file in code_and_configuration():
        text = text_of(file)
        assert FOREIGN.search(text) is None, f"{name_of(file)}: {FOREIGN.findall(text)}"
        cited = re.findall(r"docs/[a-z-]+\.md", text)
        assert [path for path in cited if not (REPOSITORY / path).is_file()] == [], name_of(file)
        assert set(re.findall(r"docs/decisions/(\d{4})", text)) <= numbers, name_of(file)


def test_settings_page_is_printed_from_the_classes() -> None:
    assert text_of(settings_page.PAGE) == settings_page.page(), "python -m tests.settings_page > docs/settings.md"


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("pyproject.toml", r'^version = "([^"]*)"$'),
        (".env.example", r"^#VOC_VERSION=(.*)$"),
        ("docker-compose.yml", r"VOC_VERSION:-([^}]*)\}"),
        ("docker-compose.gpu.yml", r"VOC_VERSION:-([^}]*)\}"),
        *((f"{folder}/Dockerfile", "^ARG VERSION=(.*)$") for folder in ("producer", "worker", "trainer")),
        ("producer/monitoring/Dockerfile", "^ARG VERSION=(.*)$"),
        ("CHANGELOG.md", r"\A[\s\S]*?^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$"),
    ],
)
def test_version_is_the_same_everywhere(file: str, pattern: str) -> None:
    assert set(re.findall(pattern, text_of(REPOSITORY / file), re.M)) == {__version__}


def test_workflow_calls_what_every_landing_passes() -> None:
    assert "run: .ci/run" in text_of(REPOSITORY / ".github/workflows/ci.yml")
