"""A zip or tar given to `lint` and `submit`: unpacked once, and never anywhere else."""

import gzip
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from random import Random

import pytest

from producer.dataset import archive
from producer.doctor.disk import prunable
from producer.jobs.submit import Request
from producer.progress import no_progress
from shared.errors import LintError
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.unit.producer.folders import CAT, lint_and_submit, write_objects
from trainer.reporting.report import reproduce_commands


def run(command: str, target: Path, store: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "producer", command, str(target), "--store", str(store), *options]
    environment = {**os.environ, **variables}
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(30):
        write_objects(tmp_path / "cards", f"photos/{index:02d}", CAT)
    return tmp_path / "cards"


def packed(folder: Path, name: str) -> Path:
    target = folder.parent / name
    if name.endswith("zip"):
        with zipfile.ZipFile(target, "w") as opened:
            for path in sorted(folder.rglob("*")):
                opened.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(target, "w:gz" if name.endswith(("gz", "tgz")) else "w") as opened_tar:
            opened_tar.add(folder, folder.name)
    return target


@pytest.mark.parametrize("name", ["cards.zip", "cards.tar", "cards.tar.gz", "cards.tgz"])
def test_an_archive_is_linted_as_its_folder_would_be(folder: Path, name: str) -> None:
    store = folder.parent / "out"
    direct, ended = run("lint", folder, store, "--json"), run("lint", packed(folder, name), store, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["counts"]["pairs"] == json.loads(direct.stdout)["counts"]["pairs"] == 30
    again = run("lint", folder.parent / name, store)
    assert "unpacking" not in again.stderr
    assert f"submit {folder.parent / name}" in again.stdout


def test_submit_takes_what_lint_unpacked_and_names_the_job_by_the_archive(folder: Path) -> None:
    target, data_root = packed(folder, "Cards.zip"), folder.parent / "data"
    data_root.mkdir()
    variables = {"VOC_BROKER_URL": "redis://127.0.0.1:1/0", "VOC_DATA_ROOT": str(data_root)}
    assert "unpacking" in run("lint", target, folder.parent / "out", **variables).stderr
    ended = run("submit", target, folder.parent / "out", "--no-train", **variables)
    assert ended.returncode == 0, ended.stderr
    assert "unpacking" not in ended.stderr
    job = json.loads((folder.parent / "out/jobs/cards/job.json").read_text())
    assert job["folder"].startswith(".unpacked/")
    assert job["archive"] == str(target)
    assert (data_root / job["folder"] / "cards/photos/00.jpg").is_file()


def test_what_is_not_whole_any_more_is_unpacked_again(folder: Path) -> None:
    target, place = packed(folder, "cards.zip"), folder.parent / "unpacked"
    inside = archive.unpacked(target, place, no_progress)
    assert archive.unpacked(target, place, no_progress) == inside
    (inside / "cards/photos/00.jpg").unlink()
    assert (archive.unpacked(target, place, no_progress) / "cards/photos/00.jpg").is_file()
    assert len(list(place.iterdir())) == 1


def test_what_a_submit_finds_unpacked_is_not_pruned_before_its_job_is_there(folder: Path) -> None:
    store = folder.parent / "store"
    photos = archive.unpacked(packed(folder, "cards.zip"), store / "unpacked", no_progress)
    for path in (photos, photos.parent, *photos.parent.iterdir()):
        os.utime(path, (0, 0))
    assert [each.kind for each in prunable(Storage(str(store)))] == ["unpacked"]
    assert archive.unpacked(folder.parent / "cards.zip", store / "unpacked", no_progress) == photos
    assert prunable(Storage(str(store))) == []


def test_what_a_converter_made_inside_stays(folder: Path) -> None:
    target, place = packed(folder, "cards.zip"), folder.parent / "unpacked"
    inside = archive.unpacked(target, place, no_progress)
    made = inside / "cards/xml/00.xml"
    made.parent.mkdir()
    made.write_text("<annotation/>")
    for lost in (None, inside / "cards/photos/00.jpg"):
        if lost is not None:
            lost.unlink()
        assert archive.unpacked(target, place, no_progress) == inside
        assert made.read_text() == "<annotation/>"
        assert (inside / "cards/photos/00.jpg").is_file()


def test_an_unpacked_file_that_somebody_changed_is_named_and_stays_as_it_is(folder: Path) -> None:
    target, store = packed(folder, "cards.zip"), folder.parent / "out"
    inside = archive.unpacked(target, store / "unpacked", no_progress)
    edited = inside / "cards/photos/07.xml"
    original = edited.read_bytes()
    edited.write_bytes(original + b"<!-- mended -->")
    (inside / "cards/photos/00.jpg").unlink()  # unpacking again for another reason would undo it too
    ended = run("lint", target, store)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"error: {target}: 1 unpacked file changed since, such as {edited}: give {inside} instead")
    assert edited.read_bytes() == original + b"<!-- mended -->"
    assert run("lint", inside, store).returncode == 0
    edited.unlink()
    assert archive.unpacked(target, store / "unpacked", no_progress) == inside
    assert edited.read_bytes() == original


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_copy_of_the_archive_by_another_name_leaves_the_photos_where_jobs_read_them(
    folder: Path, *, is_whole: bool
) -> None:
    target, place = packed(folder, "cards.zip"), folder.parent / "unpacked"
    inside = archive.unpacked(target, place, no_progress)
    (inside / "cards/added.xml").write_text("<annotation/>")
    if not is_whole:
        (inside / "cards/photos/00.jpg").unlink()
    copy = folder.parent / "cards (1).zip"
    copy.write_bytes(target.read_bytes())
    assert archive.unpacked(copy, place, no_progress) == inside
    assert (inside / "cards/added.xml").is_file()
    assert len(list((inside / "cards/photos").glob("*.jpg"))) == 30
    assert [path.name for path in sorted(inside.parent.iterdir())] == ["cards", "unpacked.json"]


@pytest.mark.parametrize("name", ["cards.zip", "cards (1).zip"])
def test_of_two_commands_at_once_the_slower_leaves_what_the_faster_unpacked(folder: Path, name: str) -> None:
    faster, place = packed(folder, "cards.zip"), folder.parent / "unpacked"
    slower = folder.parent / name
    slower.write_bytes(faster.read_bytes())
    found: dict[Path, int] = {}

    def unpack_too(_stage: str, done: int, _total: int) -> None:
        if done == 1:
            inside = archive.unpacked(faster, place, no_progress)
            found.update({path: path.stat().st_ino for path in [inside, *inside.rglob("*")]})

    assert archive.unpacked(slower, place, unpack_too) in found
    assert {path: path.stat().st_ino for path in found} == found
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize(("name", "unpack"), [("cards.zip", "unzip -q"), ("cards.tar.gz", "tar -xf")])
def test_a_data_root_that_cannot_be_written_is_answered_with_the_command(folder: Path, name: str, unpack: str) -> None:
    data_root = folder.parent / "data"
    data_root.mkdir()
    (data_root / ".unpacked").write_text("for root every folder can be written, but not this")
    target = packed(folder, name).rename(data_root / name)
    called = {"VOC_CALLED_AS": "docker compose run --rm producer", "VOC_BROKER_URL": "redis://127.0.0.1:1/0"}
    ended = run("submit", target, folder.parent / "out", VOC_DATA_ROOT=str(data_root), **called)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert f"`mkdir -p data/cards && {unpack} data/{name} -" in line
    assert f"data/cards && docker compose run --rm producer submit {data_root}/cards" in line


def test_the_report_asks_for_the_archive_again(folder: Path) -> None:
    target, store = packed(folder, "cards.zip"), folder.parent / "out"
    admitted = Request(dataset=folder, name="cards", spec=JobSpec(), run=TrainingOptions(), archive=target)
    job = lint_and_submit(admitted, storage=Storage(str(store)), data_root=folder).job
    assert job.run is not None
    assert reproduce_commands(job.run, job)[0].startswith(f"voc2tflite submit {target} --job cards")


def zip_of(path: Path, *entries: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in entries:
            opened.writestr(name, content)
    return path


def test_what_a_file_manager_writes_as_it_looks_is_nobodys_change(folder: Path) -> None:
    (folder / "photos/.DS_Store").write_bytes(b"as it was packed")
    (folder / "photos/Thumbs.db").write_bytes(b"as it was packed")
    made, store = packed(folder, "cards.zip"), folder.parent / "out"
    assert run("lint", made, store).returncode == 0
    (unpacked,) = (store / "unpacked").glob("*/cards")
    for name in (".DS_Store", "Thumbs.db"):
        (unpacked / "cards/photos" / name).write_bytes(b"another view")
    (unpacked.parent / "@eaDir").mkdir()
    again = run("lint", made.rename(folder.parent / "a copy.zip"), store)
    assert again.returncode == 0, again.stderr
    assert [path.name for path in unpacked.parent.iterdir() if path.is_dir()] in (
        ["cards", "@eaDir"],
        ["@eaDir", "cards"],
    )


class Unmarked(zipfile.ZipInfo):
    """An entry as macOS writes it: its name is UTF-8, and nothing says so."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802  # zipfile's own
        return self.filename.encode(), self.flag_bits


@pytest.mark.parametrize(
    ("entry", "name"), [(Unmarked, "caf\u00e9"), (Unmarked, "\u732b"), (zipfile.ZipInfo, "caf\u00e9")]
)
def test_names_in_utf_8_are_read_also_where_the_zip_does_not_mark_them(
    folder: Path, entry: type[zipfile.ZipInfo], name: str
) -> None:
    files = [folder / "photos" / f"00{ending}" for ending in (".jpg", ".xml")]
    made = [(entry(f"set/{name}{path.suffix}"), path.read_bytes()) for path in files]
    lists = ("set/ImageSets/Main/train.txt", f"{name}\n".encode())
    store = folder.parent / "out"
    ended = run("lint", zip_of(folder.parent / "made.zip", *made, lists), store, "--json")
    assert json.loads(ended.stdout)["counts"]["train"] == 1, ended.stderr


def tar_of(path: Path, **fields: object) -> Path:
    entry = tarfile.TarInfo("a.jpg")
    for name, value in fields.items():
        setattr(entry, name, value)
    with tarfile.open(path, "w") as opened:
        opened.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path


def link_in_zip() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("a.jpg")
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize("name", ["../a.jpg", "/etc/a.jpg", "photos/../../a.jpg", "..\\a.jpg", "C:\\a.jpg"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    for path in (zip_of(tmp_path / "a.zip", (name, b"x")), tar_of(tmp_path / "a.tar", name=name)):
        with pytest.raises(LintError, match="leads out of the archive; nothing was unpacked"):
            archive.unpacked(path, tmp_path / "unpacked", no_progress)
    assert not list((tmp_path / "unpacked").iterdir())


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    paths = [zip_of(tmp_path / "a.zip", (link_in_zip(), b"/etc/passwd"))]
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    paths += [tar_of(tmp_path / f"{at}.tar", type=kind, linkname="/etc/passwd") for at, kind in enumerate(kinds)]
    for path in paths:
        with pytest.raises(LintError, match="a link or a device; expected files and folders only"):
            archive.unpacked(path, tmp_path / "unpacked", no_progress)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_in_a_zip_twice_is_named_and_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip", ("photos/a.jpg", b"x"), ("photos\\a.jpg", b"y"))
    with pytest.raises(LintError, match=r"photos.+a\.jpg is in it more than once, expected each file once: pack"):
        archive.unpacked(path, tmp_path / "unpacked", no_progress)


def test_a_bomb_is_refused_by_what_it_unpacks_to(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "bomb.zip", *((f"{at}.bmp", bytes(2**24)) for at in range(8)))
    ended = run("lint", path, tmp_path / "out")
    assert ended.returncode == 1
    assert "it unpacks to more than 100 times its size" in ended.stderr.splitlines()[-1]
    assert not list((tmp_path / "out/unpacked").iterdir())


def test_too_many_files_and_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zip_of(tmp_path / "a.zip", *((f"{at}.jpg", os.urandom(100)) for at in range(5)))
    monkeypatch.setattr(archive, "MOST_FILES", 4)
    with pytest.raises(LintError, match="more than 4 files"):
        archive.unpacked(path, tmp_path / "unpacked", no_progress)
    monkeypatch.setattr(archive, "MOST_BYTES", 300)
    with pytest.raises(LintError, match="unpacks to more than"):
        archive.unpacked(path, tmp_path / "unpacked", no_progress)


def test_what_is_no_whole_archive_is_one_line(folder: Path) -> None:
    photo = folder / "photos/00.jpg"
    for name in ("cards.zip", "cards.tar.gz"):
        target = packed(folder, name)
        content = target.read_bytes()
        target.write_bytes(content[: len(content) // 2])
        for path in (target, photo):
            ended = run("lint", path, folder.parent / "out")
            assert ended.returncode == 1
            [line] = [line for line in ended.stderr.splitlines() if not line.startswith("unpacking")]
            assert line.startswith(f"error: {path}: ")
            assert ("it ends too early: download or copy it again" in line) == (path == target)
    assert not any((folder.parent / "out/unpacked").iterdir() if (folder.parent / "out/unpacked").exists() else [])


def tar_without_end(folder: Path) -> tuple[bytes, int]:
    """The bytes of a tar with 60 files up to the zeros that end it, and where the header of its middle begins."""
    target = packed(folder, "cards.tar")
    with tarfile.open(target) as opened:
        members = opened.getmembers()
        return target.read_bytes()[: opened.offset], members[len(members) // 2].offset


@pytest.mark.parametrize("padding", [512, 1024, 10240, 100_000])
def test_a_tar_may_end_with_any_number_of_zeros(folder: Path, padding: int) -> None:
    content, _ = tar_without_end(folder)
    (folder.parent / "cards.tar").write_bytes(content + bytes(padding))
    inside = archive.unpacked(folder.parent / "cards.tar", folder.parent / "unpacked", no_progress)
    assert len([path for path in inside.rglob("*") if path.is_file()]) == 60


@pytest.mark.parametrize("cut", ["between files", "in a header", "behind a header", "before its end"])
def test_a_tar_that_was_cut_is_refused_and_not_taken_as_a_smaller_set(folder: Path, cut: str) -> None:
    content, middle = tar_without_end(folder)
    size = {"between files": middle, "in a header": middle + 100, "behind a header": middle + 600}.get(
        cut, len(content)
    )
    (folder.parent / "cards.tar").write_bytes(content[:size])
    with pytest.raises(LintError, match="download or copy it again, or unpack it yourself"):
        archive.unpacked(folder.parent / "cards.tar", folder.parent / "unpacked", no_progress)
    assert not list((folder.parent / "unpacked").iterdir())


@pytest.mark.parametrize("kind", ["a flipped bit", "a hole", "a long hole", "two joined", "something behind it"])
def test_a_tar_with_more_than_zeros_where_reading_ends_is_refused(folder: Path, kind: str) -> None:
    content, middle = tar_without_end(folder)
    whole, at = content + bytes(1024), middle + 150
    changed = {
        "a flipped bit": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
        "a hole": whole[:middle] + bytes(512) + whole[middle + 512 :],
        "a long hole": whole[:middle] + bytes(4096) + whole[middle + 4096 :],
        "two joined": whole + whole,
    }
    (folder.parent / "cards.tar").write_bytes(changed.get(kind, whole + b"behind"))
    with pytest.raises(LintError, match=r"at byte [\d,]+ of the tar expected a file, or zeros up to the end"):
        archive.unpacked(folder.parent / "cards.tar", folder.parent / "unpacked", no_progress)
    assert not list((folder.parent / "unpacked").iterdir())


def test_the_checksum_at_the_end_of_a_tar_gz_is_compared(folder: Path) -> None:
    # Of 2 MB of noise gzip is decoded in parts, and the last, with the checksum, is behind what `tarfile` reads.
    (folder / "photos/00.jpg").write_bytes(Random(1).randbytes(2_000_000))
    target = packed(folder, "cards.tar.gz")
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    with pytest.raises(LintError, match=r"damaged.*CRC check failed.*download or copy it again"):
        archive.unpacked(target, folder.parent / "unpacked", no_progress)


@pytest.mark.parametrize("behind", [b"\n", b"<html>gone</html>"])
def test_bytes_behind_a_compressed_tar_are_counted_and_refused_clearly(folder: Path, behind: bytes) -> None:
    target = packed(folder, "cards.tar.gz")
    target.write_bytes(target.read_bytes() + behind)
    size = "1 byte" if len(behind) == 1 else f"{len(behind)} bytes"
    with pytest.raises(LintError) as refused:
        archive.unpacked(target, folder.parent / "unpacked", no_progress)
    assert str(refused.value) == (
        f"{target}: {size} behind the end of what is compressed, expected nothing there: download or copy it again, or "
        "unpack it yourself (`tar -xf` warns of them, and unpacks)"
    )
    assert not list((folder.parent / "unpacked").iterdir())


def test_two_gzips_that_are_one_are_read_and_a_cut_second_one_ends_too_early(folder: Path) -> None:
    content = packed(folder, "cards.tar").read_bytes()
    halves = [gzip.compress(half) for half in (content[:5000], content[5000:])]
    target = folder.parent / "cards.tar.gz"
    target.write_bytes(b"".join(halves))
    assert list(archive.unpacked(target, folder.parent / "unpacked", no_progress).rglob("*.xml"))
    target.write_bytes(b"".join(halves)[:-20])
    with pytest.raises(LintError, match=r"it ends too early: download or copy it again$"):
        archive.unpacked(target, folder.parent / "unpacked", no_progress)


def test_a_bomb_of_zeros_behind_the_end_of_a_tar_is_refused(folder: Path) -> None:
    content, _ = tar_without_end(folder)
    (folder.parent / "cards.tar.gz").write_bytes(gzip.compress(content + bytes(2**27)))
    with pytest.raises(LintError, match="unpacks to more than 100 times its size"):
        archive.unpacked(folder.parent / "cards.tar.gz", folder.parent / "unpacked", no_progress)


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder.parent / "out").mkdir()
    (folder.parent / "out/unpacked").write_text("a file where the folder should be")
    ended = run("lint", packed(folder, "cards.zip"), folder.parent / "out")
    assert ended.returncode == 1
    assert "it cannot be unpacked" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
