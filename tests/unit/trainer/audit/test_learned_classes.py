"""Boxes of a class that a fold never saw are not audited there, and one line says so."""

import json
from pathlib import Path

from shared.jobs.manifest import Manifest, ManifestShard
from shared.placement import place
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.audit.analysis import QUICK_REMARK, of_learned_classes
from trainer.audit.photo_frames import PhotoFrame, photo_frames
from trainer.audit.photos import LabelFinding


def audited(folder: Path, *, sized: int = 6) -> tuple[Storage, Manifest]:
    """Six photos with a box of class 1, on the last one also one of class 2; the sizes of `sized` of them are known."""
    storage = Storage(str(folder))
    images = [{"id": number, "file_name": f"{number}.jpg", "width": 100, "height": 100} for number in range(1, 7)]
    boxes = [(number, 1) for number in range(1, 7)] + [(6, 2)]
    annotations = [{"image_id": at, "category_id": class_id, "bbox": [10, 20, 30, 40]} for at, class_id in boxes]
    truth = {"images": images, "annotations": annotations}
    storage.write("jobs/j/annotations_train.json", json.dumps(truth).encode())
    sizes = {f"{number}.jpg": [400, 200] for number in range(1, sized + 1)}
    storage.write("jobs/j/photo_sizes.json", json.dumps(sizes).encode())
    shard = ManifestShard(file="train-00000-of-00001.tfrecord", size_bytes=1, sha256="", examples=6, objects=7)
    facts = {"request_digest": "0", "labels": ("cat", "dog"), "image_size": 100, "resize": "stretch", "failed": ()}
    return storage, Manifest(job="j", splits={"train": (shard,)}, counters={}, class_counts={}, **facts)


def doubt(file: str, index: int | None) -> LabelFinding:
    return LabelFinding(
        kind="missing" if index is None else "made_up",
        file_name=file,
        object_index=index,
        score=0.9,
        box=None,
        proposed_box=None,
        proposed_class_id=None,
        reason="",
    )


def left(storage: Storage, manifest: Manifest, **asked: object) -> tuple[list[LabelFinding], list[str]]:
    frames: list[PhotoFrame] = photo_frames(manifest, storage, {})[0]
    found = [doubt("1.jpg", 0), doubt("6.jpg", 0), doubt("6.jpg", 1), doubt("6.jpg", None)]
    return of_learned_classes(found, frames, RunSpec(run="r", job="j", **asked), manifest, storage)


def test_a_class_on_photos_of_one_fold_only_is_not_audited_and_said(tmp_path: Path) -> None:
    storage, manifest = audited(tmp_path)
    found, (remark,) = left(storage, manifest, folds=3, audits=("a", "b", "c"))
    assert [(each.file_name, each.object_index) for each in found] == [("1.jpg", 0), ("6.jpg", 0), ("6.jpg", None)]
    assert remark.startswith("class 'dog' is on photos of one fold only (6.jpg): no model could learn it")
    quick, remarks = left(storage, manifest, audits=("a",))
    assert len(quick) == 4
    assert remarks == [QUICK_REMARK]


def test_labels_are_moved_into_pixels_of_the_photos_and_those_of_no_size_are_left_out(tmp_path: Path) -> None:
    storage, manifest = audited(tmp_path, sized=4)
    frames, left_out = photo_frames(manifest, storage, {})
    assert [frame.file_name for frame in frames] == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]
    assert left_out == ["5.jpg", "6.jpg"]
    assert frames[0].marked.boxes.tolist() == [[40, 40, 160, 120]]
    assert frames[0].placement == place(400, 200, 100, "stretch")
