"""What `lint` tells a person at the command line of the mistakes that people make."""

import csv
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.producer.folders import Object, voc_xml, write, write_objects, write_pair


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "producer", "lint", str(folder), *options]
    narrow = os.environ | {"COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=narrow)


def found(folder: Path, *options: str) -> dict[str, list[dict[str, str]]]:
    """Kind -> the rows of `--csv`."""
    ended = lint(folder, "--csv", str(folder.parent / "lint.csv"), *options)
    assert ended.returncode == 0, ended.stderr
    rows: dict[str, list[dict[str, str]]] = {}
    with (folder.parent / "lint.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["kind"], []).append(row)
    return rows


def box(name: str, side: int = 20) -> Object:
    return (name, 10, 10, 10 + side, 10 + side)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """41 queens and 40 kings, a photo each, and one `quen`."""
    folder = tmp_path / "cards"
    for index in range(41):
        write_objects(folder, f"queen{index}", box("queen", 20 + index % 5))
    for index in range(40):
        write_objects(folder, f"king{index}", box("king", 30 + index % 5))
    write_objects(folder, "other", box("quen"))
    return folder


def test_a_class_name_a_typo_apart_comes_with_its_rename(cards: Path) -> None:
    [row] = found(cards)["class_typo"]
    assert row["found"] == "quen (1), did you mean queen (41)?"
    assert "--rename quen=queen" in row["done"]
    assert "class_typo" not in found(cards, "--rename", "quen=queen")


def test_what_is_to_be_typed_stands_on_a_line_of_its_own_and_the_next_step_has_every_rename(cards: Path) -> None:
    for index, name in enumerate(("King", "QUEEN", "queens", "quuen")):
        write_objects(cards, f"odd{index}", box(name))
    write_objects(cards, "lonely", box("a joker that nobody drew more often than this once in all of the pictures"))
    lines = lint(cards).stdout.splitlines()
    typed = [shlex.split(line) for line in lines if line.startswith("        --")]
    cases = ["--rename", "King=king", "--rename", "QUEEN=queen"]
    typos = [word for name in ("queens", "quen", "quuen") for word in ("--rename", f"{name}=queen")]
    lonely = "a joker that nobody drew more often than this once in all of the pictures"
    assert sorted(typed) == sorted([cases, typos, ["--ignore-classes", lonely]])
    (next_step,) = (shlex.split(line.removeprefix("next: ")) for line in lines if line.startswith("next: "))
    proposed = {next_step[at + 1] for at, word in enumerate(next_step) if word == "--rename"}
    assert proposed == {"King=king", "QUEEN=queen", "quen=queen", "queens=queen", "quuen=queen"}
    again = next_step[next_step.index("submit") + 1 :]
    mended = lint(Path(again[0]), *again[1:], "--ignore-classes", lonely).stdout
    assert [kind for kind in ("class_case", "class_typo", "class_small") if kind in mended] == []


def test_a_rename_that_was_typed_leads_on_to_the_proposed_one(cards: Path) -> None:
    write_objects(cards, "odd", box("dame"))
    (line,) = (line for line in lint(cards, "--rename", "dame=quen").stdout.splitlines() if line.startswith("next: "))
    assert line.endswith("--rename dame=queen --rename quen=queen")


def test_names_that_are_no_typo_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for index in range(30):
        write_objects(folder, f"a{index}", box("class1"), box("cat"), box("left hand"), box("king"))
    write_objects(folder, "b", box("class2"), box("car"), box("right hand"))
    for index in range(20):
        write_objects(folder, f"c{index}", box("ring"))  # as usual as king: a class of its own
    assert "class_typo" not in found(folder)


def test_too_few_photos_and_objects_are_said(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for index in range(12):
        write_objects(folder, f"{index}", box("many"), *([box("few")] if index < 3 else []))
    rows = found(folder)
    assert [row["found"] for row in rows["set_small"]] == ["12 photos"]
    assert [row["found"] for row in rows["class_small"]] == ["few (3)"]
    assert "--ignore-classes few" in rows["class_small"][0]["done"]


def test_equal_photos_are_named_and_those_with_other_labels_apart(cards: Path) -> None:
    for name, objects in {"same": [box("queen", 20)], "other_labels": [box("king", 20)]}.items():
        write(cards, f"x_{name}.jpg", (cards / "queen0.jpg").read_bytes())
        write(cards, f"x_{name}.xml", voc_xml(objects))
    rows = found(cards)
    assert [(row["file"], row["found"]) for row in rows["duplicate"]] == [
        ("x_same.jpg", "the same bytes as queen0.jpg")
    ]
    assert [(row["file"], row["found"]) for row in rows["duplicate_conflicting"]] == [
        ("x_other_labels.jpg", "the same bytes as queen0.jpg, but other labels")
    ]


def test_a_box_far_larger_than_the_others_of_its_class_is_named(cards: Path) -> None:
    write_pair(cards, "z.jpg", "z.xml", voc_xml([("queen", 0, 0, 100, 80)]))
    [row] = found(cards)["box_far_larger"]
    assert (row["file"], row["object"]) == ("z.xml", "1")
    assert row["found"].startswith("queen: ")


def test_a_class_that_has_all_sizes_has_none_that_is_far_larger(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for index in range(30):
        write_objects(folder, f"{index}", box("face", 2 + index * 2), box("dot", 3))
    assert "box_far_larger" not in found(folder)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rename", "qeen=queen"], "--rename qeen=queen: no object is called 'qeen'; did you mean 'quen' (1)?"),
        (["--classes", "queen,kng"], "--classes kng: no object is called 'kng'; did you mean 'king' (40)?"),
        (["--ignore-classes", "QUEN"], "--ignore-classes QUEN: no object is called 'QUEN'; did you mean 'quen' (1)?"),
        (["--ignore-classes", "zebra"], "there are 'queen' (41), 'king' (40), 'quen' (1)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", ["lint", "submit"])
def test_an_option_that_names_no_class_is_refused_with_the_nearest_name(
    cards: Path, command: str, options: list[str], told: str
) -> None:
    words = [sys.executable, "-m", "producer", command, str(cards), *options, "--store", str(cards.parent / "out")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert told in ended.stderr.splitlines()[-1]
    assert not (cards.parent / "out").exists()


def test_a_class_may_be_named_as_it_is_written_or_renamed(cards: Path) -> None:
    rows = found(cards, "--rename", "quen=queen", "--classes", "queen", "--unknown", "skip")
    assert len(rows["class_skipped"]) == 40
    assert len(found(cards, "--rename", "quen=lady", "--ignore-classes", "quen,lady")["class_ignored"]) == 1


_WITHOUT_HEIF = (
    "import sys; sys.modules['pillow_heif'] = None; sys.argv[0] = 'producer'\n"
    "from producer.__main__ import app; from shared import command; command.run(app)"
)


@pytest.mark.parametrize("name", ["phone.HEIC", "sent.jpg"])
def test_a_heic_beside_an_xml_says_what_to_do_where_it_cannot_be_read(cards: Path, name: str) -> None:
    write_pair(cards, name, f"{Path(name).stem}.xml", voc_xml([box("queen")]))
    write(cards, name, b"\0\0\0\x18ftypheic\0\0\0\0")
    command = [sys.executable, "-c", _WITHOUT_HEIF, "lint", str(cards)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "heic (info)" in ended.stdout, ended.stderr
    assert "HEIC: convert it to JPEG, or install pillow-heif" in " ".join(ended.stdout.split()).replace("… ", "")
    assert "heic" not in found(cards)


def test_a_jpeg_that_is_called_heic_is_no_finding(cards: Path) -> None:
    write_pair(cards, "phone.heic", "phone.xml", voc_xml([box("queen")]))
    command = [sys.executable, "-c", _WITHOUT_HEIF, "lint", str(cards)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "heic" not in ended.stdout.replace("phone.heic", "")


def test_a_heic_beside_the_jpeg_made_of_it_is_left_out(cards: Path) -> None:
    write(cards, "queen0.heic", b"any")
    rows = found(cards)
    assert [(row["file"], row["done"]) for row in rows["heic_left_out"]] == [("queen0.heic", "left out")]
    assert "ambiguous_stem" not in rows


@pytest.mark.parametrize(
    ("lists", "unread"),
    [
        ({"ImageSets/train.txt": "a b", "ImageSets/Validation.txt": "c"}, []),
        ({"ImageSets/Main/train.txt": "a b", "ImageSets/Main/valid.txt": "c"}, []),
        (
            {"ImageSets/Main/train.txt": "a b", "ImageSets/Main/val.txt": "c", "ImageSets/train.txt": "c"},
            ["ImageSets/train.txt"],
        ),
        (
            {"ImageSets/Main/train.txt": "a b", "ImageSets/Main/val.txt": "c", "ImageSets/Main/valid.txt": "a"},
            ["ImageSets/Main/valid.txt"],
        ),
    ],
)
def test_lists_are_read_by_the_names_that_tools_give_them(
    tmp_path: Path, lists: dict[str, str], unread: list[str]
) -> None:
    folder = tmp_path / "set"
    for stem in "abc":
        write_objects(folder, stem, box("cat"))
    for path, stems in lists.items():
        write(folder, path, stems.replace(" ", "\n"))
    assert "splits (lists): 2 train / 1 val / 0 test" in lint(folder).stdout
    assert [row["file"] for row in found(folder).get("list_not_read", [])] == unread


@pytest.mark.parametrize("typed", ["60/20/20", "60,20,20", "0.6/0.2/0.2"])
def test_shares_are_read_in_the_forms_that_people_write(cards: Path, typed: str) -> None:
    assert lint(cards, "--split", typed).stdout == lint(cards, "--split", "60/20/20").stdout


@pytest.mark.parametrize("typed", ["60/20", "1/1/1", "0.5/0.333/0.167", "a/b/c", "nan/1/1"])
def test_other_shares_are_refused_in_one_line(cards: Path, typed: str) -> None:
    ended = lint(cards, "--split", typed)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: --split {typed}: expected three shares")


def test_no_class_at_all_is_refused(cards: Path) -> None:
    ended = lint(cards, "--classes", "")
    assert ended.returncode == 2
    assert "expected class names, comma separated" in ended.stderr
