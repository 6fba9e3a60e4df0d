import hashlib
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import tensorflow as tf

from shared.errors import ShardError, TrainingError
from shared.jobs import schema
from shared.jobs.manifest import Manifest, ManifestShard
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from tests.unit.trainer.pictures import UNCHANGED, drawn_examples
from tests.unit.worker.pictures import with_orientation
from trainer.data.batches import batches_from_memory, batches_from_shards
from trainer.data.examples import (
    Examples,
    check_shards,
    choose_cache,
    draw_rows,
    free_memory_bytes,
    pad_boxes,
    picture_file,
    read_examples,
    shard_urls,
)
from trainer.data.records import decode_picture
from trainer.tensors import IGNORED, PADDING

SIDE = 64


def record(examples: Examples, row: int) -> bytes:
    def feature(kind: str, values: list[object]) -> tf.train.Feature:
        if kind == "bytes":
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if kind == "int64":
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    boxes, labels = examples.boxes[row], examples.labels[row]
    png = cv2.imencode(".png", examples.pictures[row][..., ::-1])[1].tobytes()
    values: dict[str, list[object]] = {
        schema.ENCODED: [png],
        schema.FILENAME: [examples.filenames[row].encode()],
        schema.SOURCE_ID: [str(examples.source_ids[row]).encode()],
        schema.YMIN: list(boxes[:, 0]),
        schema.XMIN: list(boxes[:, 1]),
        schema.YMAX: list(boxes[:, 2]),
        schema.XMAX: list(boxes[:, 3]),
        # An ignored object keeps its class in the record.
        schema.CLASS_LABEL: [max(int(label), 0) + 1 for label in labels],
        schema.IS_CROWD: [int(label == IGNORED) for label in labels],
    }
    features = {key: feature(schema.FEATURES[key], value) for key, value in values.items()}
    serialized: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return serialized


def write_job(store: Path, examples: Examples, shards: int = 2) -> tuple[Storage, Manifest]:
    storage, paths, listed = Storage(str(store)), JobPaths("j"), []
    (store / paths.shards).mkdir(parents=True)
    for index in range(shards):
        path = store / paths.tfrecord(f"train-{index:05d}-of-{shards:05d}")
        rows = range(index, len(examples), shards)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in rows:
                writer.write(record(examples, row))
        content = path.read_bytes()
        listed.append(
            ManifestShard(
                file=path.name,
                size_bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                examples=len(rows),
                objects=sum(len(examples.labels[row]) for row in rows),
            )
        )
    manifest = Manifest(
        job="j",
        request_digest="0",
        labels=("square", "disc"),
        image_size=SIDE,
        resize="stretch",
        splits={"train": tuple(listed)},
        failed=(),
        counters={},
        class_counts={},
    )
    return storage, manifest


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    examples = drawn_examples(5)
    storage, manifest = write_job(tmp_path, examples)
    check_shards(storage, manifest)
    found = read_examples(shard_urls(storage, manifest, ["train"]), SIDE)
    order = [0, 2, 4, 1, 3]
    np.testing.assert_array_equal(found.pictures, examples.pictures[order])
    np.testing.assert_array_equal(found.source_ids, examples.source_ids[order])
    assert found.filenames == tuple(examples.filenames[row] for row in order)
    for place, row in enumerate(order):
        np.testing.assert_allclose(found.boxes[place], examples.boxes[row])
        np.testing.assert_array_equal(found.labels[place], examples.labels[row])


def test_ignored_objects_are_read_in_memory_and_as_a_stream(tmp_path: Path) -> None:
    drawn = drawn_examples(4)
    ignored = tuple(np.array([IGNORED, *labels[1:]], np.int32) for labels in drawn.labels)
    storage, manifest = write_job(tmp_path, replace(drawn, labels=ignored))
    urls = shard_urls(storage, manifest, ["train"])
    found = read_examples(urls, SIDE)
    assert [labels.tolist() for labels in found.labels] == [ignored[row - 1].tolist() for row in found.source_ids]
    stream = batches_from_shards(urls, batch=4, image_size=SIDE, recipe=UNCHANGED, seed=1)
    (batch,) = stream.take(1).as_numpy_iterator()
    for labels, source_id in zip(batch["labels"], batch["rows"], strict=True):
        assert labels[labels != PADDING].tolist() == ignored[source_id - 1].tolist()


def test_a_picture_without_boxes_is_read(tmp_path: Path) -> None:
    examples = drawn_examples(2)
    bare = Examples(
        pictures=examples.pictures,
        boxes=(np.zeros((0, 4), np.float32),) * 2,
        labels=(np.zeros(0, np.int32),) * 2,
        source_ids=examples.source_ids,
        filenames=examples.filenames,
    )
    storage, manifest = write_job(tmp_path, bare)
    assert read_examples(shard_urls(storage, manifest, ["train"]), SIDE).boxes[0].shape == (0, 4)


def test_a_flipped_bit_in_a_shard_is_refused(tmp_path: Path) -> None:
    storage, manifest = write_job(tmp_path, drawn_examples(4))
    path = tmp_path / JobPaths("j").shards / manifest.splits["train"][0].file
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ShardError, match="SHA-256"):
        check_shards(storage, manifest)
    with pytest.raises(ShardError, match="cannot be read"):
        read_examples(shard_urls(storage, manifest, ["train"]), SIDE)


def test_a_job_without_training_pictures_is_refused(tmp_path: Path) -> None:
    storage, manifest = write_job(tmp_path, drawn_examples(2))
    with pytest.raises(TrainingError, match="no picture"):
        check_shards(storage, manifest.model_copy(update={"splits": {}}))


def test_a_job_whose_training_pictures_lost_all_objects_is_refused(tmp_path: Path) -> None:
    storage, manifest = write_job(tmp_path, drawn_examples(2))
    empty = tuple(shard.model_copy(update={"objects": 0}) for shard in manifest.splits["train"])
    with pytest.raises(TrainingError, match=r"job j: no photo of train has an object: lint\.csv says why"):
        check_shards(storage, manifest.model_copy(update={"splits": {"train": empty}}))


def test_a_picture_of_another_size_is_refused(tmp_path: Path) -> None:
    storage, manifest = write_job(tmp_path, drawn_examples(2))
    with pytest.raises(ShardError, match="96 px"):
        read_examples(shard_urls(storage, manifest, ["train"]), 96)


@pytest.mark.parametrize("count", [1, 3, 8, 13])
def test_every_row_is_drawn_once_an_epoch(count: int) -> None:
    drawn = np.concatenate([draw_rows(step, batch=4, count=count, seed=7) for step in range(count * 2)])
    epochs = drawn.reshape(-1, count)
    assert len(epochs) == 8
    for epoch in epochs:
        assert sorted(epoch) == list(range(count))


def test_the_order_is_another_in_each_epoch_and_with_each_seed() -> None:
    def orders(seed: int) -> list[tuple[int, ...]]:
        return [tuple(draw_rows(step, batch=20, count=20, seed=seed)) for step in range(5)]

    assert len({*orders(1), *orders(2)}) == 10


def test_a_picture_is_read_as_its_pixels_are_stored() -> None:
    """Boxes are of these, whatever an EXIF that has stayed in the file says."""
    pixels = drawn_examples(1).pictures[0]
    upright, turned = (with_orientation(pixels, orientation, quality=95) for orientation in (1, 6))
    np.testing.assert_array_equal(decode_picture(turned, "a.jpg", SIDE), decode_picture(upright, "a.jpg", SIDE))


def test_a_stream_of_changed_pictures_that_starts_later_changes_them_as_the_first_did(tmp_path: Path) -> None:
    storage, manifest = write_job(tmp_path, drawn_examples(7))
    urls = shard_urls(storage, manifest, ["train"])
    recipe = UNCHANGED.model_copy(update={"brightness": 0.3, "translate": 0.2})
    streams = [
        batches_from_shards(urls, batch=3, image_size=SIDE, recipe=recipe, seed=1, first_step=first) for first in (0, 4)
    ]
    whole, later = ([*stream.take(count).as_numpy_iterator()] for stream, count in zip(streams, (6, 2), strict=True))
    for batch, again in zip(whole[4:], later, strict=True):
        np.testing.assert_array_equal(again["pictures"], batch["pictures"])
        np.testing.assert_array_equal(again["boxes"], batch["boxes"])


def test_a_stream_started_later_goes_on_where_the_first_was(tmp_path: Path) -> None:
    examples = drawn_examples(7)
    storage, manifest = write_job(tmp_path, examples)
    urls = shard_urls(storage, manifest, ["train"])

    def memory(first: int) -> tf.data.Dataset:
        return batches_from_memory(examples, batch=3, recipe=UNCHANGED, seed=1, first_step=first)

    def shards(first: int) -> tf.data.Dataset:
        return batches_from_shards(urls, batch=3, image_size=SIDE, recipe=UNCHANGED, seed=1, first_step=first)

    for stream in (memory, shards):
        whole = [batch["rows"] for batch in stream(0).take(6).as_numpy_iterator()]
        later = [batch["rows"] for batch in stream(4).take(2).as_numpy_iterator()]
        np.testing.assert_array_equal(later, whole[4:])


def test_a_streamed_batch_holds_pictures_with_their_own_boxes(tmp_path: Path) -> None:
    examples = drawn_examples(7)
    storage, manifest = write_job(tmp_path, examples)
    urls = shard_urls(storage, manifest, ["train"])
    stream = batches_from_shards(urls, batch=4, image_size=SIDE, recipe=UNCHANGED, seed=1)
    batches = list(stream.take(3).as_numpy_iterator())
    assert [len(batch["rows"]) for batch in batches] == [4, 4, 4]
    for batch in batches:
        for place, source_id in enumerate(batch["rows"]):
            row = int(source_id) - 1
            np.testing.assert_array_equal(batch["pictures"][place], examples.pictures[row])
            real = batch["labels"][place] >= 0
            np.testing.assert_allclose(batch["boxes"][place][real], examples.boxes[row], atol=1e-6)


def test_padding_is_marked() -> None:
    corners = np.arange(12, dtype=np.float32).reshape(3, 4)
    boxes, labels = pad_boxes(corners, np.array([1, 0, 2], np.int32), np.array([0, 0, 2]), 4)
    assert boxes.shape == (4, 2, 4)
    assert labels.tolist() == [[1, 0], [-1, -1], [2, -1], [-1, -1]]
    np.testing.assert_array_equal(boxes[[0, 0, 2], [0, 1, 0]], corners)
    nothing = pad_boxes(np.zeros((0, 4), np.float32), np.zeros(0, np.int32), np.zeros(0, np.int64), 2)
    assert [block.shape for block in nothing] == [(2, 1, 4), (2, 1)]


def test_pictures_are_kept_in_memory_or_in_a_file_or_not_at_all_by_their_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trainer.data.examples")
    assert choose_cache(10**6, cache_mb=1, folder=tmp_path) == "memory"
    assert choose_cache(10**6 + 1, cache_mb=1, folder=tmp_path) == "file"
    assert choose_cache(10**6 + 1, cache_mb=1, folder=None) == "none"
    assert choose_cache(10**18, cache_mb=10**9, folder=tmp_path) == "none"
    assert choose_cache(free_memory_bytes() // 2, cache_mb=10**9, folder=None) == "none", "others want some too"
    said = [record.__dict__["kept"] for record in caplog.records]
    assert said == ["memory", "file", "none", "none", "none"]
    assert caplog.records[0].__dict__["memory_allowed_mib"] == 0


def test_pictures_kept_in_a_file_are_the_same_and_leave_no_file(tmp_path: Path) -> None:
    examples = drawn_examples(5)
    storage, manifest = write_job(tmp_path, examples)
    urls = shard_urls(storage, manifest, ["train"])
    before = sorted(tmp_path.rglob("*"))
    found = read_examples(urls, SIDE, picture_file(tmp_path, 5, SIDE))
    assert isinstance(found.pictures, np.memmap)
    np.testing.assert_array_equal(found.pictures, read_examples(urls, SIDE).pictures)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(ShardError, match="more records"):
        read_examples(urls, SIDE, picture_file(tmp_path, 3, SIDE))


def test_a_disk_too_small_for_the_pictures_is_an_error_and_no_signal(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"o space|too large"):
        picture_file(tmp_path, 10**9, 4096)


def test_pictures_that_are_left_out_come_neither_from_memory_nor_from_shards(tmp_path: Path) -> None:
    examples = drawn_examples(9)
    storage, manifest = write_job(tmp_path, examples)
    urls, without = shard_urls(storage, manifest, ["train"]), {int(examples.source_ids[row]) for row in (0, 4, 5)}
    kept = set(examples.source_ids.tolist()) - without
    room = np.empty((len(kept), SIDE, SIDE, 3), np.uint8)
    found = read_examples(urls, SIDE, room, without=without)
    assert set(found.source_ids.tolist()) == kept
    row = found.source_ids.tolist().index(int(examples.source_ids[8]))
    np.testing.assert_array_equal(found.pictures[row], examples.pictures[8])
    stream = batches_from_shards(urls, batch=3, image_size=SIDE, recipe=UNCHANGED, seed=1, without=without)
    rows = np.concatenate([batch["rows"] for batch in stream.take(4).as_numpy_iterator()])
    assert set(rows.tolist()) == kept
