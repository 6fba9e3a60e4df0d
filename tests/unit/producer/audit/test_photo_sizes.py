"""The sizes of a job's photos as an audit notes them: upright, of a folder and of a bucket, those gone left out."""

import json
import uuid
from pathlib import Path

import cv2
import numpy as np
import pytest

from producer.audit.photo_sizes import note_photo_sizes, photo_size, photos_folder
from producer.jobs.submit import Request
from producer.progress import no_progress
from shared.errors import PlanError
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.specs.data import JobSpec
from shared.storage import Storage, data_folder
from tests.object_server import ObjectServer
from tests.tiny import make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from tests.unit.worker.pictures import with_orientation

TURNED, GONE, DAMAGED = 2, 5, 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_voc(tmp_path / "voc", 10)


def pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png"))


def spoiled_job(folder: Path, storage: Storage) -> tuple[Job, dict[str, list[int]]]:
    """A job of which one photo is turned, one gone, and one damaged since; the sizes that are to be found."""
    turned = np.zeros((70, 50, 3), np.uint8)
    pictures(folder)[TURNED].write_bytes(with_orientation(turned, 6))
    request = Request(dataset=folder, name="job", spec=JobSpec(image_size=32), run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    found = pictures(folder)
    found[DAMAGED].write_bytes(b"\xff\xd8\xff no picture")
    found[GONE].unlink()
    names = [path.relative_to(folder).as_posix() for path in found]
    sizes = {name: [16, 16] for place, name in enumerate(names) if place not in (GONE, DAMAGED)}
    return job, sizes | {names[TURNED]: [70, 50]}


def noted(job: Job, storage: Storage) -> dict[str, list[int]]:
    content: dict[str, list[int]] = json.loads(storage.read(JobPaths("job").photo_sizes(job.incarnation)))
    return content


def test_sizes_are_upright_and_of_the_photos_that_can_be_read(folder: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    job, sizes = spoiled_job(folder, storage)
    note_photo_sizes(job, photos_folder(job, "/nowhere"), storage, no_progress)
    assert noted(job, storage) == sizes
    pictures(folder)[0].unlink()
    note_photo_sizes(job, folder, storage, no_progress)
    assert noted(job, storage) == sizes, "they are noted once"


def test_a_photo_that_was_gone_is_measured_once_it_is_back(folder: Path, tmp_path: Path) -> None:
    storage, gone = Storage(str(tmp_path / "store")), pictures(folder)[GONE]
    job = lint_and_submit(
        Request(dataset=folder, name="job", spec=JobSpec(image_size=32), run=None), storage=storage, data_root=folder
    ).job
    away = gone.rename(tmp_path / gone.name)
    note_photo_sizes(job, folder, storage, no_progress)
    name = gone.relative_to(folder).as_posix()
    assert name not in noted(job, storage)
    away.rename(gone)
    note_photo_sizes(job, folder, storage, no_progress)
    assert noted(job, storage)[name] == [16, 16]


def test_a_photo_that_was_replaced_since_the_submit_has_no_size_and_others_have(folder: Path, tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    request = Request(dataset=folder, name="job", spec=JobSpec(image_size=32), run=None)
    job = lint_and_submit(request, storage=storage, data_root=folder).job
    replaced, touched, relabelled, *_ = pictures(folder)
    other = np.full((16, 16, 3), 9, np.uint8)
    replaced.write_bytes(cv2.imencode(replaced.suffix, other)[1].tobytes())
    touched.write_bytes(touched.read_bytes())
    xml = next(folder.rglob(f"{relabelled.stem}.xml"))
    xml.write_bytes(xml.read_bytes() + b"\n")
    note_photo_sizes(job, folder, storage, no_progress)
    names = {path.relative_to(folder).as_posix() for path in pictures(folder)}
    assert noted(job, storage).keys() == names - {replaced.relative_to(folder).as_posix()}


def behind_the_pixels(png: bytes) -> bytes:
    """A PNG whose orientation comes last, as some programs that only add it leave it."""
    start = png.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(png[start : start + 4])
    return png[:start] + png[end:-12] + png[start:end] + png[-12:]


@pytest.mark.parametrize("name", ["a.webp", "b.png", "c.png"])
def test_an_orientation_behind_many_pixels_is_seen(name: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 500, 3), np.uint8)
    content = with_orientation(noise, 6, "PNG" if name.endswith("png") else "WEBP", lossless=True)
    (tmp_path / name).write_bytes(behind_the_pixels(content) if name == "c.png" else content)
    assert photo_size(tmp_path, name, 10**6) == (300, 500)


def test_photos_of_a_bucket_are_measured_there(folder: Path, tmp_path: Path, object_server: ObjectServer) -> None:
    storage = Storage(str(tmp_path / "store"))
    job, sizes = spoiled_job(folder, storage)
    url = object_server.upload(folder, f"data/{uuid.uuid4().hex}")
    note_photo_sizes(job, data_folder(url), storage, no_progress)
    assert noted(job, storage) == sizes


def test_photos_that_are_nowhere_are_said(folder: Path, tmp_path: Path) -> None:
    job, _ = spoiled_job(folder, Storage(str(tmp_path / "store")))
    moved = folder.rename(tmp_path / "moved")
    with pytest.raises(PlanError, match="are not there any more, and an audit needs them"):
        photos_folder(job, "/nowhere")
    assert photos_folder(job, str(moved)) == moved
