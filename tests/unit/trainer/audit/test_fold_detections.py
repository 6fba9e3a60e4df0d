"""The detections of a fold's part as a file."""

import numpy as np
import pytest

from shared.errors import StorageError, TrainingError
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.audit.fold_detections import pack, read_folds, unpack
from trainer.detections import Detections


def seen(*scores: float) -> Detections:
    count = len(scores)
    return Detections(
        boxes=np.arange(4 * count, dtype=np.float32).reshape(-1, 4),
        class_ids=np.arange(1, count + 1, dtype=np.int64),
        scores=np.array(scores, np.float32),
    )


def audit(*folds: str) -> RunSpec:
    return RunSpec(run="a", job="j", folds=len(folds), audits=folds)


def test_what_was_packed_is_read_back_and_the_same_gives_the_same_bytes() -> None:
    found = {7: seen(0.9, 0.2), 3: seen(), 12: seen(0.5)}
    content = pack(found)
    assert content == pack(dict(reversed(found.items())))
    back = unpack(content)
    assert list(back) == [3, 7, 12]
    for image_id, detections in found.items():
        np.testing.assert_array_equal(back[image_id].boxes, detections.boxes)
        np.testing.assert_array_equal(back[image_id].class_ids, detections.class_ids)
        np.testing.assert_array_equal(back[image_id].scores, detections.scores)
    assert unpack(pack({})) == {}


def test_all_parts_are_put_together_and_an_absent_one_is_named(tmp_path: object) -> None:
    storage = Storage(str(tmp_path))
    for name, part in (("one", {1: seen(0.5)}), ("two", {2: seen(0.6)})):
        storage.write(f"runs/{name}/detections.npz", pack(part))
    assert read_folds(storage, audit("one", "two"), 2).keys() == {1, 2}
    with pytest.raises(StorageError, match=r"three/detections\.npz: absent"):
        read_folds(storage, audit("one", "three"), 2)
    # Nothing would be seen on a photo that an older version had dealt to another fold, and its labels called made up.
    with pytest.raises(
        TrainingError, match=r"1 photo was seen by no fold, as two versions dealt them: `.* rm j --run a"
    ):
        read_folds(storage, audit("one", "two"), 3)
