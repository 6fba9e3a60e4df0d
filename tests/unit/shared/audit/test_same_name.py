"""Photos of one name in two jobs: the same ones, whatever became of them, are told from others by their shards."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from producer.jobs.submit import Request
from shared.audit.same_name import learned_photos, other_pictures, splits_of
from shared.jobs.identity import find_job
from shared.jobs.paths import RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.producer.audit.test_corrected_copy import written
from tests.unit.producer.folders import CAT, lint_and_submit, voc_xml, write
from tests.unit.trainer.reporting.test_compare import finished
from tests.unit.trainer.reporting.test_paired import BEFORE, NOW, kept
from trainer.reporting.compare import against_first, compare_runs

SIZE = (128, 96)
NAMES = [f"{number:03d}.jpg" for number in range(1, 11)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


def photo(seed: int, quality: int = 90) -> bytes:
    """A photo of its own as JPEG."""
    coarse = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), np.uint8)
    pixels = cv2.resize(coarse, SIZE, interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def run_of(folder: Path, name: str, storage: Storage, seeds: list[int], quality: int = 90, side: int = 64) -> RunSpec:
    """A run of a job whose photos are `NAMES`, each a picture of its own seed."""
    for file, seed in zip(NAMES, seeds, strict=True):
        write(folder, f"{name}/{file}", photo(seed, quality))
        write(folder, f"{name}/{file[:-4]}.xml", voc_xml([CAT], size=SIZE))
    spec = JobSpec(image_size=side)
    job = lint_and_submit(
        Request(dataset=folder / name, name=name, spec=spec, run=None), storage=storage, data_root=folder
    ).job
    written(folder, job, storage)
    return RunSpec(job=job.job, incarnation=job.incarnation, run=name)


def test_another_photo_of_the_same_name_is_told_from_the_same_photo(tmp_path: Path, storage: Storage) -> None:
    first = run_of(tmp_path, "first", storage, [*range(10)])
    other = run_of(tmp_path, "other", storage, [*range(9), 100], quality=60, side=96)
    assert other_pictures(storage, first, other) == {"010.jpg"}
    assert other_pictures(storage, first, other, NAMES[:9]) == set()
    assert other_pictures(storage, first, first) == set()
    gone = other.model_copy(update={"incarnation": "0" * 32})
    assert other_pictures(storage, first, gone) == set(), "of a removed job nothing is known"


def test_a_photo_that_was_learned_is_known_under_another_name_and_from_the_run_before(
    tmp_path: Path, storage: Storage
) -> None:
    asked = run_of(tmp_path, "first", storage, [*range(10)])
    storage.write(RunPaths("first").request, asked.to_json().encode())
    job = find_job(storage, "first")
    assert job is not None
    learned = {name for name, split in splits_of(storage, job).items() if split == "train"}
    # The picture of 001.jpg is that of 010.jpg there, and so on.
    run_of(tmp_path, "turned", storage, [*range(9, -1, -1)])
    turned = find_job(storage, "turned")
    assert turned is not None
    known = {NAMES[9 - NAMES.index(name)] for name in learned}
    assert learned_photos(storage, "first", (storage, turned)) == known
    later = asked.model_copy(update={"run": "later", "job": "gone", "backbone": "conv"}).model_copy(
        update={"start": "weights/0123456789abcdef-first.keras"}
    )
    storage.write(RunPaths("later").request, later.to_json().encode())
    assert learned_photos(storage, "later", (storage, turned)) == known
    assert learned_photos(storage, "nobody", (storage, turned)) == set()


def test_compare_leaves_out_what_has_only_its_name_in_common(tmp_path: Path, storage: Storage) -> None:
    for name, seeds, pictures in (("first", [*range(10)], BEFORE), ("other", [*range(4), *range(100, 106)], NOW)):
        asked = run_of(tmp_path, name, storage, seeds)
        finished(Path(storage.root), name, 0.9, 0.89)
        storage.write(RunPaths(name).request, asked.to_json().encode())
        storage.write(f"{RunPaths(name).root}/detections_test.json", kept(pictures))
    [pair], _ = against_first(compare_runs(["first", "other"], storage), storage)
    assert (pair.photos, pair.other_pictures) == (4, 6)
    assert dict(pair.only) == {"first": 0, "other": 0}
    assert "6 names of both are of another picture in each: left out" in pair.remarks
