import numpy as np
import pytest

from tests.unit.trainer.pictures import drawn_examples
from trainer.detections import Detections
from trainer.evaluation.measure import detect_all


@pytest.mark.parametrize(("batch", "calls"), [(4, [4, 4]), (1, [1] * 5)])
def test_every_picture_is_seen_once_and_padding_is_dropped(batch: int, calls: list[int]) -> None:
    examples = drawn_examples(5)
    batches = []

    def detect(pictures: np.ndarray) -> list[Detections]:
        batches.append(pictures)
        return [
            Detections(
                boxes=np.zeros((1, 4), np.float32), class_ids=np.ones(1, np.int64), scores=np.array([picture.mean()])
            )
            for picture in pictures
        ]

    found = detect_all(detect, examples.shard_pictures(), batch=batch)
    assert [len(pictures) for pictures in batches] == calls
    assert list(found) == examples.source_ids.tolist()
    np.testing.assert_allclose([seen.scores[0] for seen in found.values()], examples.pictures.mean((1, 2, 3)))


@pytest.mark.parametrize("batch", [1, 24])
def test_the_guard_hears_of_a_long_split_now_and_then(batch: int) -> None:
    told: list[int] = []
    nothing = Detections(
        boxes=np.zeros((0, 4), np.float32), class_ids=np.zeros(0, np.int64), scores=np.zeros(0, np.float32)
    )
    pictures = drawn_examples(70, side=32).shard_pictures()
    detect_all(
        lambda seen: [nothing] * len(seen), pictures, batch=batch, advance=lambda pictures: told.append(pictures)
    )
    assert told == {1: [32, 64], 24: [48, 70]}[batch]
