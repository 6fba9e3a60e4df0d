"""Shards of another job in a new one: the same bytes as a fresh run, or none."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import pytest

from producer.jobs.control import cancel
from producer.jobs.removal import remove
from producer.jobs.reuse import reuse_shards, why_not
from producer.jobs.submit import Admission, Request
from producer.progress import no_progress
from producer.state.status import job_status
from producer.state.stored import load_job, stored_state
from shared.jobs.contents import contents_of
from shared.jobs.identity import read_receipt
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.jobs.schema import SHARD_FORMAT
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.frozen import canonical_json
from shared.storage import Storage
from tests.tiny import add_tiny_picture, make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

PICTURES = 300
SPEC = JobSpec(shard_images=32, image_size=32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", PICTURES)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def ask(folder: Path, name: str, storage: Storage, spec: JobSpec = SPEC) -> Admission:
    request = Request(dataset=folder, name=name, spec=spec, run=None)
    return lint_and_submit(request, storage=storage, data_root=folder)


def work(storage: Storage, job: Job, folder: Path) -> list[str]:
    """Write what is missing, as a worker does; the names of those shards."""
    written = []
    for line in storage.lines(JobPaths(job.job).plan(job.incarnation)):
        task = ShardTask.model_validate_json(line)
        if read_receipt(storage, job, task.shard) is None:
            write_shard(task, job, storage=storage, data_root=folder, guard=Unguarded(), attempt=1)
            written.append(task.shard)
    return written


def stored_quarantines(storage: Storage, job: Job) -> dict[str, int]:
    """The counters of all shards that say why a pair was set aside."""
    receipts = [read_receipt(storage, job, shard) for shard in job.shards]
    found: Counter[str] = Counter()
    for receipt in receipts:
        assert receipt is not None
        found.update({kind: count for kind, count in receipt.counters.items() if kind.startswith(("image_", "pair_"))})
    return dict(found)


def shard_bytes(storage: Storage, job: str) -> dict[str, bytes]:
    """The files of all shards; of receipts what does not tell which job they are of."""
    folder = storage.local_path(JobPaths(job).shards)
    return {path.name: _without_identity(path) for path in folder.iterdir()}


def _without_identity(path: Path) -> bytes:
    if path.suffix != ".json" or path.name.endswith(".coco.json"):
        return path.read_bytes()
    receipt = json.loads(path.read_bytes())
    return canonical_json({**receipt, "incarnation": "", "task_digest": ""}).encode()


def test_added_photo_leads_to_one_new_shard_and_to_the_bytes_of_a_fresh_run(
    storage: Storage, folder: Path, tmp_path: Path
) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    add_tiny_picture(folder, PICTURES)
    admission = ask(folder, "second", storage)
    assert admission.reuse is not None
    shards = len(admission.job.shards)
    assert (admission.reuse.shards, admission.reuse.lenders) == (shards - 1, ("first",))
    assert job_status(storage, None, admission.job, 0.1).reused == shards - 1
    assert len(work(storage, admission.job, folder)) == 1
    fresh = Storage(str(tmp_path / "fresh"))
    work(fresh, ask(folder, "second", fresh).job, folder)
    assert shard_bytes(storage, "second") == shard_bytes(fresh, "second")


def test_lender_may_be_removed(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    second = ask(folder, "second", storage).job
    assert len(stored_state(storage, second, 0.1).done) == len(second.shards)
    before = shard_bytes(storage, "second")
    cancel(storage, None, "first")
    remove(storage, None, "first")
    assert shard_bytes(storage, "second") == before


def test_taking_over_again_changes_nothing(storage: Storage, folder: Path) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    second = ask(folder, "second", storage).job
    before = shard_bytes(storage, "second")
    again = reuse_shards(second, storage=storage, folder=folder, progress=no_progress)
    assert again.shards == 0
    receipt = JobPaths("second").receipt(second.shards[0])
    storage.remove(receipt)  # as if it had been killed just before it
    assert reuse_shards(second, storage=storage, folder=folder, progress=no_progress).shards == 1
    assert shard_bytes(storage, "second") == before
    assert not [name for name in before if ".tmp-" in name]


def test_damaged_shard_is_not_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    damaged = storage.local_path(JobPaths("first").tfrecord(first.shards[0]))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1
    assert read_receipt(storage, load_job(storage, "second"), first.shards[0]) is None


def test_shard_with_a_picture_touched_since_is_not_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    picture = folder / "JPEGImages/000007.jpg"
    before = picture.stat()
    picture.write_bytes(picture.read_bytes())
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1


def test_what_a_second_attempt_set_aside_is_tried_anew(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    shard = first.shards[0]
    receipt = read_receipt(storage, load_job(storage, "first"), shard)
    assert receipt is not None
    changed = receipt.model_copy(update={"attempt": 2, "quarantined": 1})
    storage.write(JobPaths("first").receipt(shard), changed.to_json().encode())
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1


@pytest.mark.parametrize(
    ("name", "meanwhile"),
    [
        ("Annotations/000007.xml", b"<annotation><other/></annotation>"),
        ("Annotations/000007.xml", b"<annotation>"),
        ("Annotations/000007.xml", None),
        ("JPEGImages/000007.jpg", None),
    ],
)
def test_shard_of_files_that_were_gone_or_others_for_a_while_is_not_lent(
    storage: Storage, folder: Path, name: str, meanwhile: bytes | None
) -> None:
    first = ask(folder, "first", storage).job
    file, aside = folder / name, folder.parent / "aside"
    file.rename(aside)
    if meanwhile is not None:
        file.write_bytes(meanwhile)
    work(storage, first, folder)
    aside.replace(file)
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1
    [shard] = work(storage, second.job, folder)
    receipt = read_receipt(storage, load_job(storage, "second"), shard)
    assert receipt is not None
    assert receipt.quarantined == 0


def test_pictures_whose_library_was_missing_are_tried_anew(
    storage: Storage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heif = pytest.importorskip("pillow_heif")
    picture = np.asarray(cv2.imread(str(folder / "JPEGImages/000007.jpg")))
    (folder / "JPEGImages/000007.jpg").unlink()
    size = (picture.shape[1], picture.shape[0])
    heif.from_bytes(mode="BGR", size=size, data=picture.tobytes()).save(folder / "JPEGImages/000007.heic")
    first = ask(folder, "first", storage).job
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pillow_heif", None)
        work(storage, first, folder)
    assert stored_quarantines(storage, first) == {"image_unsupported": 1}
    second = ask(folder, "second", storage).job
    assert len(work(storage, second, folder)) == 1
    assert stored_quarantines(storage, second) == {}


def test_job_whose_shards_may_hold_other_bytes_says_so_and_lends_nothing(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    assert first.shard_format == SHARD_FORMAT
    older = first.model_copy(update={"shard_format": SHARD_FORMAT + 1, "made_by": "voc2tflite 9.9.9"})
    assert reason(first, older) == (
        f"shards of format {SHARD_FORMAT + 1} (voc2tflite 9.9.9); this version writes format {SHARD_FORMAT}"
    )
    assert reason(first, first.model_copy(update={"made_by": "voc2tflite 9.9.9"})) is None


def test_job_of_the_first_version_says_that_it_names_no_format_and_lends_nothing(
    storage: Storage, folder: Path
) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    path = JobPaths("first").job
    told = json.loads(storage.read(path))
    del told["shard_format"]
    storage.write(path, canonical_json(told).encode())
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == 0
    [refusal] = second.reuse.reasons
    assert refusal == (
        f"first has shards of a format that {first.made_by} did not note; this version writes format {SHARD_FORMAT}"
    )


def test_shard_that_another_version_wrote_into_a_job_of_this_one_is_not_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    receipt = read_receipt(storage, load_job(storage, "first"), first.shards[0])
    assert receipt is not None
    assert receipt.shard_format == SHARD_FORMAT
    changed = receipt.model_copy(update={"shard_format": SHARD_FORMAT + 1})
    storage.write(JobPaths("first").receipt(first.shards[0]), changed.to_json().encode())
    second = ask(folder, "second", storage)
    assert second.reuse is not None
    assert second.reuse.shards == len(first.shards) - 1


def test_other_options_or_classes_say_why_nothing_is_lent(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage).job
    work(storage, first, folder)
    other = ask(folder, "other", storage, JobSpec(shard_images=32, image_size=64))
    assert other.reuse is not None
    assert other.reuse.shards == 0
    assert other.reuse.reasons == ("first has other options (--image-size 32)",)
    assert "other classes (y)" in str(reason(first, first.model_copy(update={"labels": ("x", "y")})))
    assert reason(first, load_job(storage, "first")) is None


def test_the_nearest_job_alone_is_named_with_values_as_they_are_typed(storage: Storage, folder: Path) -> None:
    ask(folder, "far", storage, JobSpec(image_size=64, resize="letterbox", rename={"x": "y"}))
    ask(folder, "near", storage, JobSpec(rename={"x": "y z"}))
    asked = ask(folder, "asked", storage, JobSpec(split=(70, 20, 10)))
    assert asked.reuse is not None
    assert asked.reuse.reasons == ("near has other options (--split 80/10/10, --rename 'x=y z')",)
    bare = ask(folder, "bare", storage, JobSpec(classes=("y z",), rename={"x": "y z"}))
    assert bare.reuse is not None
    assert bare.reuse.reasons == ("near has other options (no --classes)",)


def test_photos_whose_folder_was_moved_are_known_again_and_the_reason_is_the_true_one(
    storage: Storage, folder: Path, tmp_path: Path
) -> None:
    work(storage, ask(folder, "first", storage).job, folder)
    moved = folder.rename(tmp_path / "moved")
    other = ask(moved, "other", storage, JobSpec(shard_images=32, image_size=64)).reuse
    assert other is not None
    assert other.reasons == ("first has other options (--image-size 32)",)
    add_tiny_picture(moved, PICTURES)
    grown = ask(moved, "grown", storage).reuse
    assert grown is not None
    assert (grown.lenders, grown.reasons) == (("first",), ("photos were added, changed or removed",))
    (tmp_path / "above").mkdir()
    moved.rename(tmp_path / "above/deeper")
    deeper = ask(tmp_path / "above", "deeper", storage).reuse
    assert deeper is not None
    assert deeper.shards == 0
    assert deeper.reasons == ("photos were added, changed or removed, or have other paths below the folder",)


def reason(job: Job, lender: Job) -> str | None:
    return why_not(job.spec, job.labels, job.shard_format, lender)


def test_reasons_tell_a_first_job_other_photos_and_unwritten_shards(storage: Storage, folder: Path) -> None:
    first = ask(folder, "first", storage)
    assert first.reuse is not None
    assert first.reuse.reasons == ("the store has no other job",)
    other = ask(make_tiny_voc(folder.parent / "other", 10), "other", storage)
    assert other.reuse is not None
    assert other.reuse.reasons == ("no other job has photos at these paths with these annotations",)
    again = ask(folder, "again", storage)
    assert again.reuse is not None
    assert again.reuse.reasons == ("first has not written them",)
    work(storage, first.job, folder)
    os.utime(folder / "JPEGImages/000000.jpg")
    touched = ask(folder, "touched", storage)
    assert touched.reuse is not None
    assert touched.reuse.shards == len(first.job.shards) - 1
    assert "photos were written or moved after first was submitted" in touched.reuse.reasons


def test_of_a_job_of_other_photos_the_plan_is_read_once(storage: Storage, folder: Path, tmp_path: Path) -> None:
    other = make_tiny_voc(tmp_path / "other", 40)
    for image in (other / "JPEGImages").iterdir():
        image.rename(image.with_stem(f"other-{image.stem}"))
    for xml in (other / "Annotations").iterdir():
        xml.rename(xml.with_stem(f"other-{xml.stem}"))
    first = ask(other, "first", storage).job
    work(storage, first, other)
    storage.remove(JobPaths("first").contents)  # as in the store of an earlier version
    assert ask(folder, "second", storage).reuse is not None
    assert storage.exists(JobPaths("first").contents)
    storage.remove(JobPaths("first").plan(first.incarnation))
    work(storage, load_job(storage, "second"), folder)
    third = ask(folder, "third", storage)
    assert third.reuse is not None
    assert third.reuse.lenders == ("second",)


def test_contents_that_promise_too_much_lend_nothing_that_differs(storage: Storage, folder: Path) -> None:
    """A hint is no proof: the plan decides."""
    work(storage, ask(folder, "first", storage).job, folder)
    add_tiny_picture(folder, PICTURES)
    work(storage, second := ask(folder, "second", storage).job, folder)
    claimed = json.loads(storage.read(JobPaths("first").contents))
    contents = contents_of(storage, "second")
    assert contents is not None
    storage.write(JobPaths("first").contents, canonical_json({**claimed, "shards": contents.shards}).encode())
    cancel(storage, None, "second")
    remove(storage, None, "second")
    third = ask(folder, "third", storage)
    assert third.reuse is not None
    assert third.reuse.shards == len(second.shards) - 1
    assert len(work(storage, third.job, folder)) == 1
