"""Keys, types and values of a record, against our own reader and against TensorFlow's."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ShardError
from shared.jobs import schema
from shared.jobs.job import PathPair
from worker.record.example import StoredObject, fractions, parse_example, serialize_example

JPEG = b"\xff\xd8jpeg"
PAIR = PathPair(image="JPEGImages/été 1.jpg", annotation=None, source_id=17, fingerprint="0" * 16)
CAT = StoredObject(
    class_id=2,
    name="chat noir",
    box=(10.0, 20.0, 170.0, 320.0),
    difficult=True,
    truncated=False,
    is_crowd=True,
    view="Left",
)
DOG = StoredObject(
    class_id=1,
    name="犬",
    box=(0.0, 0.0, 320.0, 1.0),
    difficult=False,
    truncated=True,
    is_crowd=False,
    view="Unspecified",
)


def test_record_holds_every_key_of_the_schema_with_its_value() -> None:
    features = parse_example(serialize_example(JPEG, 320, PAIR, [CAT, DOG]))
    assert features == {
        "image/encoded": [b"\xff\xd8jpeg"],
        "image/format": [b"jpeg"],
        "image/height": [320],
        "image/width": [320],
        "image/filename": ["JPEGImages/été 1.jpg".encode()],
        "image/source_id": [b"17"],
        "image/key/sha256": [hashlib.sha256(b"\xff\xd8jpeg").hexdigest().encode()],
        "image/object/bbox/xmin": [0.03125, 0.0],
        "image/object/bbox/ymin": [0.0625, 0.0],
        "image/object/bbox/xmax": [0.53125, 1.0],
        "image/object/bbox/ymax": [1.0, pytest.approx(1 / 320, abs=1e-9)],
        "image/object/class/text": [b"chat noir", "犬".encode()],
        "image/object/class/label": [2, 1],
        "image/object/difficult": [1, 0],
        "image/object/truncated": [0, 1],
        "image/object/is_crowd": [1, 0],
        "image/object/view": [b"Left", b"Unspecified"],
        "image/object/area": [48000.0, 320.0],
    }
    assert set(features) == set(schema.FEATURES)


def test_picture_without_objects_has_every_list_present_and_empty() -> None:
    features = parse_example(serialize_example(JPEG, 320, PAIR, []))
    assert {key: features[key] for key in schema.LISTS} == {key: [] for key in schema.LISTS}


def test_same_input_gives_same_bytes() -> None:
    assert serialize_example(JPEG, 320, PAIR, [CAT, DOG]) == serialize_example(JPEG, 320, PAIR, [CAT, DOG])


@pytest.mark.parametrize("record", [b"", b"\xff\xff\xff", serialize_example(JPEG, 320, PAIR, [])[:-3]])
def test_what_is_no_example_of_the_schema_is_refused(record: bytes) -> None:
    with pytest.raises(ShardError):
        parse_example(record)


@given(st.lists(st.floats(-1e-3, 1e5), min_size=4, max_size=4), st.integers(32, 4096))
def test_fractions_are_in_the_unit_interval_and_exact_in_float32(corners: list[float], size: int) -> None:
    found = fractions((corners[0], corners[1], corners[2], corners[3]), size)
    record = serialize_example(
        JPEG,
        320,
        PAIR,
        [
            StoredObject(
                class_id=1,
                name="a",
                box=(corners[0], corners[1], corners[2], corners[3]),
                difficult=False,
                truncated=False,
                is_crowd=False,
                view="",
            )
        ],
    )
    assert all(0 <= fraction <= 1 for fraction in found)
    if size == 320:
        assert parse_example(record)[schema.XMIN] == [found[0]]


def test_tensorflow_reads_what_was_written_in_the_same_process() -> None:
    tf = pytest.importorskip("tensorflow")
    kinds = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
    spec = {key: tf.io.FixedLenFeature([], kinds[kind]) for key, kind in schema.SCALARS.items()}
    spec |= {key: tf.io.VarLenFeature(kinds[kind]) for key, kind in schema.LISTS.items()}
    for objects in ([CAT, DOG], []):
        record = serialize_example(JPEG, 320, PAIR, objects)
        theirs = tf.io.parse_single_example(record, spec)
        ours = parse_example(record)
        for key in schema.SCALARS:
            assert theirs[key].numpy() == ours[key][0]
        for key in schema.LISTS:
            assert tf.sparse.to_dense(theirs[key]).numpy().tolist() == pytest.approx(ours[key])
        assert tf.train.Example.FromString(record).features.feature[schema.WIDTH].int64_list.value == [320]


def test_a_key_of_another_type_is_refused_and_named() -> None:
    tf = pytest.importorskip("tensorflow")
    example = tf.train.Example.FromString(serialize_example(JPEG, 320, PAIR, [CAT]))
    example.features.feature[schema.XMIN].int64_list.value[:] = [0]
    with pytest.raises(ShardError, match=f"record without {schema.XMIN} as float"):
        parse_example(example.SerializeToString())
