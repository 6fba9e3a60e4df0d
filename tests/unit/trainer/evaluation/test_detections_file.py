"""What a model saw of a split, kept as a file: nothing of it changes on the way, and a part of it keeps what it is."""

import json
from typing import Any

import numpy as np
import pytest

from shared.audit.seen import SeenSplit
from shared.errors import ExportError, FormatError
from trainer.detections import Detections
from trainer.evaluation.detections_file import choose, detections_file, read_detections
from trainer.evaluation.measure import measure

FACTS: dict[str, Any] = {"run": "r", "form": "int8", "split": "test", "labels": ("cat", "dog"), "image_size": 96}
BOXES = {1: (10.0, 20.0, 40.0, 60.0), 2: (30.0, 30.0, 90.0, 80.0)}


def truth() -> dict[str, Any]:
    """Photo 7 shows a cat, photo 9 a dog and a cat."""
    rows = [(7, 1), (9, 2), (9, 1)]
    return {
        "images": [{"id": 9, "file_name": "b.jpg"}, {"id": 7, "file_name": "a.jpg"}],
        "annotations": [
            {
                "id": at,
                "image_id": image,
                "category_id": label,
                "bbox": [BOXES[label][0], BOXES[label][1], 30.0, 40.0],
                "area": 1200.0,
                "iscrowd": 0,
            }
            for at, (image, label) in enumerate(rows, start=1)
        ],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }


def seen(*rows: tuple[int, float]) -> Detections:
    """Detections (class, score), each of its class's box moved by a third of a pixel."""
    boxes = [
        [BOXES[label][0] + 1 / 3, BOXES[label][1], BOXES[label][0] + 30, BOXES[label][1] + 40] for label, _ in rows
    ]
    return Detections(
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        class_ids=np.array([label for label, _ in rows], np.int64),
        scores=np.array([score for _, score in rows], np.float32),
    )


def split() -> SeenSplit:
    found = {9: seen((2, 0.9), (1, 0.2)), 7: seen((1, 0.123456789))}
    return read_detections(detections_file(truth(), found, **FACTS, resize="stretch"), "detections_test.json")


def test_the_scene_of_a_photo_is_kept_if_it_has_one() -> None:
    known = truth()
    known["images"][0] |= {"scene": "video", "width": 96}
    content = detections_file(known, {7: seen(), 9: seen()}, **FACTS, resize="stretch")
    assert read_detections(content, "x").scenes() == {"a.jpg": "", "b.jpg": "video"}
    assert content.count(b"scene") == 1


def test_the_same_detections_give_the_same_bytes_in_any_order() -> None:
    one = detections_file(truth(), {7: seen((1, 0.5)), 9: seen()}, **FACTS, resize="stretch")
    other = detections_file(truth(), {9: seen(), 7: seen((1, 0.5))}, **FACTS, resize="stretch")
    assert one == other
    assert b"NaN" not in one


def test_boxes_and_scores_are_kept_as_finely_as_any_figure_shows() -> None:
    rows = {row["image_id"]: row for row in split().detections if row["category_id"] == 1}
    assert rows[7]["score"] == 0.1234568
    assert rows[7]["bbox"] == [10.3333, 20.0, 29.6667, 40.0]


def test_photos_are_found_by_their_file() -> None:
    assert split().photos() == {"a.jpg": 7, "b.jpg": 9}


def test_a_part_has_ids_that_count_from_one_and_the_same_figures() -> None:
    part = choose(split(), ["b.jpg"], ["dog"])
    assert part.truth["images"] == [{"id": 1}]
    assert [(row["image_id"], row["category_id"]) for row in part.truth["annotations"]] == [(1, 1)]
    assert part.seen[1].class_ids.tolist() == [1]
    assert measure(part.truth, part.seen).figures["map50"] == pytest.approx(1.0)


def test_a_photo_in_which_nothing_was_seen_is_there_without_detections() -> None:
    kept = read_detections(
        detections_file(truth(), {7: seen(), 9: seen((2, 0.9))}, **FACTS, resize="stretch"), "detections_test.json"
    )
    part = choose(kept, ["a.jpg", "b.jpg"], ["cat", "dog"])
    assert {at: len(found.scores) for at, found in part.seen.items()} == {1: 0, 2: 1}
    assert part.seen[1].boxes.shape == (0, 4)


def test_boxes_of_another_picture_size_are_scaled() -> None:
    small, large = (choose(split(), ["a.jpg"], ["cat"], scale).seen[1].boxes for scale in (1.0, 2.0))
    assert np.allclose(large, 2 * small)
    assert choose(split(), ["a.jpg"], ["cat"], 2.0).truth["annotations"][0]["area"] == 4 * 1200


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"schema_version": 9}', b"\xff\xfe", json.dumps({"schema_version": 1, "run": 3}).encode()],
)
def test_a_file_that_is_damaged_or_of_another_version_is_refused_by_its_name(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"detections_test\.json"):
        read_detections(content, "detections_test.json")


@pytest.mark.parametrize("damage", [{"bbox": None}, {"bbox": ["x", 0, 1, 1]}])
def test_a_row_that_is_no_row_is_refused_with_its_run(damage: dict[str, Any]) -> None:
    kept = split()
    broken = kept.model_copy(update={"detections": ({**kept.detections[0], **damage},)})
    with pytest.raises(ExportError, match="the detections of run r are damaged"):
        choose(broken, ["a.jpg", "b.jpg"], ["cat", "dog"])
