"""A corrected copy of a data set: the original stays as it was, and the copy's unchanged photos count as unchanged."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from PIL import Image

from producer.audit.corrected_copy import check_free, write_corrected
from producer.audit.photo_sizes import note_photo_sizes
from producer.jobs.submit import Admission, Request
from producer.photos import photos_in
from producer.progress import no_progress
from shared.annotation.reader import read_annotation
from shared.audit.findings import AuditFinding, PhotoBox
from shared.errors import OptionError, StorageError
from shared.jobs.identity import read_receipt
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.storage import Storage
from tests.tiny import XML, make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

SPEC = JobSpec(shard_images=4, image_size=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", 40)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def submitted(folder: Path, name: str, storage: Storage) -> Admission:
    return lint_and_submit(Request(dataset=folder, name=name, spec=SPEC, run=None), storage=storage, data_root=folder)


def written(folder: Path, job: Job, storage: Storage) -> list[str]:
    """Write what is missing, as a worker does; the names of those shards."""
    names = []
    for line in storage.lines(JobPaths(job.job).plan(job.incarnation)):
        task = ShardTask.model_validate_json(line)
        if read_receipt(storage, job, task.shard) is None:
            write_shard(task, job, storage=storage, data_root=folder, guard=Unguarded(), attempt=1)
            names.append(task.shard)
    return names


def removal(folder: Path, xml: Path, *, file: str | None = None) -> AuditFinding:
    (one, *_) = read_annotation(xml.read_bytes(), file=xml.name, spec=SPEC).objects
    image = next(path for path in sorted(folder.rglob(f"{xml.stem}.*")) if path.suffix != ".xml")
    return AuditFinding(
        id="0123456789",
        kind="made_up",
        file=file or image.relative_to(folder).as_posix(),
        object=1,
        score=0.7,
        class_name=one.name,
        box=one.box,
        proposed_class="",
        proposed_box=None,
        reason="nothing is seen there",
    )


def addition(file: str, box: PhotoBox) -> AuditFinding:
    return AuditFinding(
        id="0123456789",
        kind="missing",
        file=file,
        object=None,
        score=0.7,
        class_name="",
        box=None,
        proposed_class="x",
        proposed_box=box,
        reason="nothing is marked here",
    )


def tree(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_ctime_ns, path.stat().st_nlink) for path in files}


def test_the_copy_differs_in_one_xml_and_makes_only_its_shard_again(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job = submitted(folder, "job", storage).job
    shards = written(folder, job, storage)
    before, xml = tree(folder), sorted(folder.rglob("*.xml"))[7]
    finding, copy = removal(folder, xml), tmp_path / "new/copy"
    (line,) = write_corrected(job, storage, folder, [finding], copy)
    assert line.startswith(f"x0123456789 {finding.file} object 1 ({finding.class_name}): removed ")
    assert line.endswith("; nothing is seen there")
    assert tree(folder) == before
    changed = [
        path
        for path in folder.rglob("*")
        if path.is_file() and (copy / path.relative_to(folder)).read_bytes() != path.read_bytes()
    ]
    assert changed == [xml]
    again = submitted(copy, "again", storage)
    assert again.reuse is not None
    assert again.reuse.shards == len(shards) - 1
    assert len(written(copy, again.job, storage)) == 1


def test_a_photo_that_was_changed_in_the_copy_counts_as_changed(folder: Path, storage: Storage, tmp_path: Path) -> None:
    job, copy = submitted(folder, "job", storage).job, tmp_path / "copy"
    image = next(path for path in sorted(folder.rglob("*")) if path.suffix in (".jpg", ".png"))
    finding = removal(folder, sorted(folder.rglob("*.xml"))[7])
    list(write_corrected(job, storage, folder, [finding], copy))
    name = image.relative_to(folder).as_posix()
    assert photos_in(copy).changed_at(name) == pytest.approx(image.stat().st_ctime, abs=1e-3)
    second = tmp_path / "second"
    list(write_corrected(job, storage, copy, [], second))
    assert photos_in(second).changed_at(name) == pytest.approx(image.stat().st_ctime, abs=1e-3), "a copy of a copy"
    touched_at = time.time() - 1
    shutil.copyfile(image, copy / name)
    assert photos_in(copy).changed_at(name) > max(touched_at, image.stat().st_ctime)
    (second / ".voc2tflite-copy.json").write_text(json.dumps({"photos": {name: "no pair"}}))
    assert photos_in(second).changed_at(name) == (second / name).stat().st_ctime


def test_photos_and_xml_that_are_gone_are_said_and_the_rest_is_done(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job = submitted(folder, "job", storage).job
    xmls = sorted(folder.rglob("*.xml"))[:3]
    findings = [removal(folder, xml) for xml in xmls]
    (folder / findings[0].file).unlink()
    xmls[1].unlink()
    lines = list(write_corrected(job, storage, folder, findings, tmp_path / "copy"))
    assert "not changed, the photo is gone" in lines[0]
    assert "is gone" in lines[1]
    assert ": removed " in lines[2]


def test_a_photo_of_another_size_than_was_audited_gets_no_boxes_of_that_one(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job = submitted(folder, "job", storage).job
    note_photo_sizes(job, folder, storage, no_progress)
    photos = sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))[:2]
    Image.new("RGB", (8, 24)).save(photos[0])
    findings = [addition(path.relative_to(folder).as_posix(), (12, 12, 15, 15)) for path in photos]
    lines = list(write_corrected(job, storage, folder, findings, tmp_path / "copy"))
    assert ": not changed, the photo is 8x24 by now, and 16x16 was audited: put that one back, or " in lines[0]
    assert ": added x 12 12 15 15;" in lines[1]


def test_a_photo_replaced_by_another_of_its_size_since_the_audit_gets_no_boxes_of_that_one(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job = submitted(folder, "job", storage).job
    note_photo_sizes(job, folder, storage, no_progress)
    photos = sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))[:2]
    Image.new("RGB", (16, 16), "green").save(photos[0])
    findings = [addition(path.relative_to(folder).as_posix(), (12, 12, 15, 15)) for path in photos]
    lines = list(write_corrected(job, storage, folder, findings, tmp_path / "copy"))
    assert ": not changed, the photo is another file by now than the one that was audited: put that one " in lines[0]
    assert ": added x 12 12 15 15;" in lines[1]


def test_a_photo_whose_head_nobody_noted_is_corrected(folder: Path, storage: Storage, tmp_path: Path) -> None:
    job = submitted(folder, "job", storage).job
    note_photo_sizes(job, folder, storage, no_progress)
    storage.remove(JobPaths(job.job).photo_heads(job.incarnation))
    image = min(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))
    finding = addition(image.relative_to(folder).as_posix(), (12, 12, 15, 15))
    (line,) = write_corrected(job, storage, folder, [finding], tmp_path / "copy")
    assert ": added x 12 12 15 15;" in line


def test_a_background_photo_that_exif_turns_gets_an_xml_whose_boxes_are_read_as_upright(
    storage: Storage, tmp_path: Path
) -> None:
    folder, exif = make_tiny_voc(tmp_path / "voc", 12), Image.Exif()
    exif[0x112] = 6
    Image.new("RGB", (40, 20)).save(folder / "JPEGImages/turned.jpg", exif=exif)
    spec = SPEC.model_copy(update={"background": "orphans"})
    request = Request(dataset=folder, name="job", spec=spec, run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    missed = addition("JPEGImages/turned.jpg", (2, 22, 18, 38))
    (line,) = write_corrected(job, storage, folder, [missed], tmp_path / "copy")
    assert ": added x 2 22 18 38;" in line
    xml = (tmp_path / "copy/JPEGImages/turned.xml").read_bytes()
    assert read_annotation(xml, file="turned.xml", spec=spec).size == (20, 40)


@pytest.mark.parametrize("place", ["JPEGImages", "Annotations"])
def test_an_xml_that_a_background_photo_has_got_since_the_submit_is_left_alone(
    place: str, storage: Storage, tmp_path: Path
) -> None:
    folder = make_tiny_voc(tmp_path / "voc", 12, annotated=10)
    spec = SPEC.model_copy(update={"background": "orphans"})
    request = Request(dataset=folder, name="job", spec=spec, run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    (folder / place / "000011.xml").write_text(XML)
    findings = [addition(f"JPEGImages/{stem}.jpg", (10, 10, 15, 15)) for stem in ("000010", "000011")]
    lines = list(write_corrected(job, storage, folder, findings, tmp_path / "copy"))
    assert ": added x 10 10 15 15;" in lines[0]
    assert lines[1].endswith(f": not changed, {place}/000011.xml is there, which the job never read")
    (there,) = (tmp_path / "copy").rglob("000011.xml")
    assert there.read_text() == XML


def test_of_two_background_photos_of_one_stem_the_second_takes_no_xml_from_the_first(
    storage: Storage, tmp_path: Path
) -> None:
    folder = make_tiny_voc(tmp_path / "voc", 12)
    for ending, colour in (("jpg", "red"), ("png", "blue")):
        Image.new("RGB", (40, 20), colour).save(folder / f"JPEGImages/twin.{ending}")
    spec = SPEC.model_copy(update={"background": "orphans"})
    request = Request(dataset=folder, name="job", spec=spec, run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    findings = [addition(f"JPEGImages/twin.{ending}", (2, 2, 9, 9)) for ending in ("jpg", "png")]
    lines = list(write_corrected(job, storage, folder, findings, tmp_path / "copy"))
    assert [": not changed, JPEGImages/twin.xml is there" in line for line in lines] == [False, True]


def test_a_file_that_cannot_be_copied_is_named_and_nothing_is_left(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job = submitted(folder, "job", storage).job
    (folder / "dangling.jpg").symlink_to(tmp_path / "nowhere")
    list(write_corrected(job, storage, folder, [], tmp_path / "out/one"))
    os.mkfifo(folder / "pipe.jpg")
    with pytest.raises(StorageError, match=r"pipe\.jpg.*cannot be copied"):
        list(write_corrected(job, storage, folder, [], tmp_path / "out/two"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["one"]


def test_a_file_whose_name_is_not_utf_8_is_copied_with_the_others(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    strange = Path(os.fsdecode(b"JPEGImages/gr\xfcn.jpg"))
    image = next(path for path in sorted(folder.rglob("*")) if path.suffix in (".jpg", ".png"))
    shutil.copyfile(image, folder / strange)
    job, copy = submitted(folder, "job", storage).job, tmp_path / "copy"
    finding = removal(folder, sorted(folder.rglob("*.xml"))[7])
    (line,) = write_corrected(job, storage, folder, [finding], copy)
    assert ": removed " in line
    assert (copy / strange).read_bytes() == image.read_bytes()
    name = image.relative_to(folder).as_posix()
    assert photos_in(copy).changed_at(name) == pytest.approx(image.stat().st_ctime, abs=1e-3)


def test_links_are_followed_where_lint_follows_them_and_left_out_elsewhere(storage: Storage, tmp_path: Path) -> None:
    root, copy, again = tmp_path / "root", tmp_path / "copy", tmp_path / "again"
    folder, lent = make_tiny_voc(root / "voc", 8), make_tiny_voc(root / "lent", 3)
    photo = next(path for path in sorted(folder.rglob("*")) if path.suffix in (".jpg", ".png"))
    secret = tmp_path / "secret.jpg"
    shutil.copyfile(photo, secret)
    targets = {"self": ".", ".hidden": "../lent", "SegmentationClass": "../lent", "secret.jpg": str(secret)}
    followed = {"lent": "../lent", "twin.jpg": str(photo.relative_to(folder))}
    for name, target in (targets | followed).items():
        (folder / name).symlink_to(target)
    request = Request(dataset=folder, name="job", spec=SPEC, run=None)
    job = lint_and_submit(request, storage=storage, data_root=root).job
    list(write_corrected(job, storage, folder, [], copy))
    assert not [name for name in targets if (copy / name).exists()]
    assert (copy / "twin.jpg").read_bytes() == photo.read_bytes()
    names = {path.relative_to(lent) for path in lent.rglob("*") if path.is_file()}
    assert {path.relative_to(copy / "lent") for path in (copy / "lent").rglob("*") if path.is_file()} == names
    assert not [path for path in copy.rglob("*") if path.is_symlink()]
    list(write_corrected(job.model_copy(update={"folder": "."}), storage, folder, [], again))
    assert not (again / "lent").exists(), "it is not in the data root"


def test_a_copy_of_what_nobody_may_write_can_be_written(folder: Path, storage: Storage, tmp_path: Path) -> None:
    job, copy, xml = submitted(folder, "job", storage).job, tmp_path / "copy", sorted(folder.rglob("*.xml"))[7]
    finding, places = removal(folder, xml), [folder, *folder.rglob("*")]
    for path in places:
        path.chmod(path.stat().st_mode & ~0o222)
    (line,) = write_corrected(job, storage, folder, [finding], copy)
    assert ": removed " in line
    # Root, as whom containers run tests, may write whatever the mode says.
    assert all(path.stat().st_mode & 0o200 for path in [copy, *copy.iterdir()])
    assert (copy / xml.relative_to(folder)).stat().st_mode & 0o200
    assert not any(path.stat().st_mode & 0o222 for path in places)


def test_a_folder_with_something_in_it_or_inside_the_photos_is_refused(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="is not empty"):
        check_free(folder, "--out")
    with pytest.raises(OptionError, match="found a file"):
        check_free(sorted(folder.rglob("*.xml"))[0], "--out")
    with pytest.raises(OptionError, match=r"^--out s3://bucket/copy: expected a folder of this machine, found a URL"):
        check_free(Path("s3://bucket/copy"), "--out")
    job = submitted(folder, "job", storage).job
    with pytest.raises(OptionError, match="inside the photos' folder"):
        list(write_corrected(job, storage, folder, [], folder / "copy"))
    assert not (folder / "copy").exists()


def test_options_that_name_a_class_that_was_corrected_away_are_taken_of_the_copy_and_its_shards_reused(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    xml = sorted(folder.rglob("*.xml"))[7]
    xml.write_text(xml.read_text().replace("<name>x</name>", "<name>ecks</name>"))
    spec = JobSpec(shard_images=4, image_size=32, rename={"ecks": "x"})

    def submit(photos: Path, name: str, asked: JobSpec = spec) -> Admission:
        request = Request(dataset=photos, name=name, spec=asked, run=None)
        return lint_and_submit(request, storage=storage, data_root=photos)

    job = submit(folder, "job").job
    shards = written(folder, job, storage)
    copy, second = tmp_path / "copy", tmp_path / "second"
    finding = removal(folder, xml).model_copy(update={"class_name": "x"})
    (line,) = write_corrected(job, storage, folder, [finding], copy)
    assert ": removed " in line
    again = submit(copy, "again")
    assert again.reuse is not None
    assert again.reuse.shards == len(shards) - 1
    plain = submit(copy, "plain", SPEC).job
    list(write_corrected(plain, storage, copy, [], second))
    assert submit(second, "copy-of-a-copy").job.spec == spec
    with pytest.raises(OptionError, match="no object is called 'exx'"):
        submit(copy, "mistyped", JobSpec(rename={"exx": "x"}))
    (copy / ".voc2tflite-copy.json").write_text(json.dumps({"names": [7, ["ecks"]]}))
    with pytest.raises(OptionError, match="no object is called 'ecks'"):
        submit(copy, "damaged")


def test_what_an_accept_left_that_was_killed_is_removed_by_the_next_one(
    folder: Path, storage: Storage, tmp_path: Path
) -> None:
    job, left = submitted(folder, "job", storage).job, tmp_path / "out/.corrected-a1b2c3d4"
    shutil.copytree(folder, left / "copy")
    list(write_corrected(job, storage, folder, [], tmp_path / "out/copy"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["copy"]
