"""Names that break lines, terminals and markup, from a folder to what people and programs read back."""

import csv
import io
from collections import Counter
from pathlib import Path

import pytest

from producer.state.stored import load_job
from tests.cluster import Cluster, assert_common_outcome, wait_until
from tests.tiny import XML, add_tiny_picture, make_tiny_voc

# It names the window of most terminals; nothing of ours writes such a sequence.
TITLE = "\x1b]0;owned\x07"

# As the XML has it -> as it is everywhere after.
CLASSES = {
    "a\nb": "a b",
    "c\u2028d": "c d",
    "e\x9bf": "e\\x9bf",
    "\n\t  cat\n\t": "cat",
    "[/x]": "[/x]",
}


def make_voc(folder: Path, names: list[str], pictures: int = 10) -> Path:
    """A folder whose pictures show the classes `names` by turns."""
    make_tiny_voc(folder, pictures, annotated=0)
    for number in range(pictures):
        xml = XML.replace("<name>x</name>", f"<name>{names[number % len(names)]}</name>")
        (folder / "Annotations" / f"{number:06d}.xml").write_text(xml, encoding="utf-8")
    return folder


def make_shards(cluster: Cluster, folder: Path, *options: str) -> str:
    """Have the folder's shards made; all that the command has printed."""
    cluster.data_root = folder.parent
    cluster.serve()
    cluster.worker()
    ledger = cluster.broker.ledger()
    wait_until(lambda: ledger.workers() and ledger.round_age_s() is not None, 60, "worker and service are there")
    submitted = cluster.producer("submit", str(folder), "--job", "job", "--no-train", *options)
    cluster.wait_for("job")
    assert_common_outcome(cluster, "job")
    return submitted.stdout + submitted.stderr


def lines(path: Path) -> list[str]:
    """The lines of a file as a reader on any system splits them, at line feeds only."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def test_every_class_is_one_line_of_labels_txt_and_one_id(cluster: Cluster, tmp_path: Path) -> None:
    make_shards(cluster, make_voc(tmp_path / "voc", list(CLASSES)))
    job, written = load_job(cluster.storage(), "job"), cluster.store / "jobs/job"
    assert list(job.labels) == sorted(CLASSES.values())
    assert lines(written / "labels.txt") == list(job.labels)
    assert (written / "labels.txt").read_text(encoding="utf-8").splitlines() == list(job.labels)
    assert (written / "label_map.pbtxt").read_text(encoding="utf-8").count("\n  name: ") == len(CLASSES)


def test_a_class_that_was_respelled_is_a_finding_and_one_in_pretty_printed_xml_is_none(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_shards(cluster, make_voc(tmp_path / "voc", list(CLASSES)))
    rows = list(csv.DictReader(io.StringIO((cluster.store / "jobs/job/lint.csv").read_text(encoding="utf-8"))))
    respelled = Counter((row["rank"], row["found"], row["done"]) for row in rows if row["kind"] == "class_respelled")
    assert respelled == {
        ("mended", repr("a\nb"), "read as 'a b'"): 2,
        ("mended", repr("c\u2028d"), "read as 'c d'"): 2,
        ("mended", repr("e\x9bf"), r"read as 'e\\x9bf'"): 2,
    }
    assert load_job(cluster.storage(), "job").counts["class_respelled"] == 6


def test_classes_are_chosen_and_renamed_as_they_are_read(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_voc(tmp_path / "voc", list(CLASSES))
    chosen = ("--classes", "a\tb,[/x]", "--ignore-classes", "c  d,cat", "--rename", "e\x9bf= [/x]\n")
    make_shards(cluster, folder, *chosen)
    job = load_job(cluster.storage(), "job")
    assert job.labels == ("[/x]", "a b")
    assert (job.counts["class:[/x]"], job.counts["class:a b"]) == (4, 2)


def test_markup_in_class_folder_store_and_job_is_printed_as_it_is(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "[").mkdir()
    cluster.store = tmp_path / "[" / "x]" / "store"
    folder = make_voc(tmp_path / "[" / "x]" / "voc", ["[/x]", "[bold]y[/bold]", ":cat:"])
    told = make_shards(cluster, folder)
    for shown in ("[/x]", "[bold]y[/bold]", ":cat:", f"{cluster.store}/jobs/job"):
        assert shown in told
    again = cluster.producer("submit", str(folder), "--job", "job", "--no-train", "--wait")
    assert f"job: 3 shards, {cluster.store}/jobs/job/manifest.json" in again.stdout
    assert "[/x]/voc" in cluster.producer("lint", str(folder)).stdout
    assert "[/x]/store" in cluster.producer("doctor", check=False, COLUMNS="400").stdout
    assert "job: DONE" in cluster.producer("status", "job").stdout
    asked = cluster.producer("rm", "job", check=False, stdin="n\n")
    assert f"from {cluster.store}?" in asked.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("lint", "[/x]"),
        ("submit", ".", "--job", "[/x]", "--local"),
        ("submit", ".", "--split", "[/x]"),
        ("submit", ".", "--resize", "[/x]"),
        ("status", "[/x]"),
        ("status", "--store", "file:///[/x]", "none"),
        ("[/x]",),
    ],
)
def test_markup_in_what_is_wrong_is_printed_as_it_is(cluster: Cluster, command: tuple[str, ...]) -> None:
    ended = cluster.producer(*command, check=False, COLUMNS="400")
    assert "Traceback" not in ended.stderr
    assert "[/x]" in ended.stderr
    assert ended.returncode in (1, 2)


def test_no_control_character_of_a_name_reaches_the_terminal(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_voc(tmp_path / f"voc{TITLE}", ["cat"])
    add_tiny_picture(make_tiny_voc(folder / f"more{TITLE}", 1), 1)
    lists = folder / "ImageSets/Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{number:06d}\n" for number in range(10)) + f"{TITLE}\n")
    told = [make_shards(cluster, folder)]
    for command in (
        ("lint", str(folder)),
        ("lint", str(folder), "--strict", "--rename", TITLE),
        ("lint", f"{folder}/none{TITLE}"),
        ("status", TITLE),
        ("status", "job", "--store", f"{tmp_path}/store{TITLE}"),
        ("rm", "job", "--store", str(cluster.store), TITLE),
        (TITLE,),
    ):
        ended = cluster.producer(*command, check=False)
        told += [ended.stdout, ended.stderr]
    bars = cluster.producer("lint", str(folder), FORCE_COLOR="1", COLUMNS="200")
    told_in_colour = bars.stdout + bars.stderr
    assert "\x1b[" in told_in_colour
    assert "\x1b]" not in told_in_colour
    assert "\x07" not in told_in_colour
    assert "\x1b" not in "".join(told)
    assert "\x07" not in "".join(told)
    assert "\\x1b]0;owned\\x07" in told[0]


def test_a_name_that_breaks_a_line_is_refused_and_the_split_lists_stay_whole(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_voc(tmp_path / "voc", ["cat"])
    for name in ("a\nb", "c\u2028d", "e\rf", f"g{TITLE}"):
        for place, ending in (("JPEGImages", "jpg"), ("Annotations", "xml")):
            (folder / place / f"{name}.{ending}").write_bytes((folder / place / f"000000.{ending}").read_bytes())
    make_shards(cluster, folder)
    written = cluster.store / "jobs/job"
    listed = [line for split in (written / "splits").iterdir() for line in lines(split)]
    assert sorted(listed) == [f"JPEGImages/{number:06d}.jpg" for number in range(10)]
    rows = list(csv.reader(lines(written / "lint.csv")))
    refused = {row[0] for row in rows if row[3] == "name_control_character"}
    stems = ("a\\nb", "c\\u2028d", "e\\rf", "g\\x1b]0;owned\\x07")
    assert refused == {f"{path}" for stem in stems for path in (f"JPEGImages/{stem}.jpg", f"Annotations/{stem}.xml")}
    assert load_job(cluster.storage(), "job").counts["images"] == 10


def test_a_folder_that_is_not_utf_8_is_refused_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_voc(tmp_path / "caf\udce9", ["cat"])
    ended = cluster.producer("submit", str(folder), "--job", "job", "--no-train", "--local", check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: dataset: ")
    assert "rename the folder" in ended.stderr.splitlines()[-1]
    assert r"caf\udce9" in ended.stderr.splitlines()[-1]
