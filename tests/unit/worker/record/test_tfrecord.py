"""The framing of records, and that TensorFlow reads what we wrote."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ShardError
from worker.record.tfrecord import masked_crc32c, read_records, tfrecord


def test_frame_is_that_of_the_format() -> None:
    """CRC32C of 32 zero bytes is 0x8a9136aa (RFC 3720, B.4); masked as in tensorflow/core/lib/hash/crc32c.h."""
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    framed = tfrecord([bytes(32)])
    assert struct.unpack_from("<Q", framed)[0] == 32
    assert framed[12:44] == bytes(32)
    assert len(framed) == 32 + 16


@given(st.lists(st.binary(max_size=300), max_size=10))
def test_records_are_read_back(records: list[bytes]) -> None:
    assert list(read_records(tfrecord(records), file="x")) == records


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4), st.data())
def test_any_flipped_bit_is_found(records: list[bytes], draw: st.DataObject) -> None:
    content = bytearray(tfrecord(records))
    position = draw.draw(st.integers(0, len(content) * 8 - 1))
    content[position // 8] ^= 1 << position % 8
    with pytest.raises(ShardError, match=r"x\.tfrecord: record"):
        list(read_records(bytes(content), file="x.tfrecord"))


def test_any_truncation_is_found_or_ends_between_records() -> None:
    records = [b"one", b"", b"three"]
    content = tfrecord(records)
    ends = {0, 19, 35, 56}
    for end in range(len(content) + 1):
        if end in ends:
            assert list(read_records(content[:end], file="x")) == records[: sorted(ends).index(end)]
        else:
            with pytest.raises(ShardError, match="the file ends within"):
                list(read_records(content[:end], file="x"))


def test_tensorflow_reads_our_records(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    records = [bytes([number]) * number * 100 for number in range(20)]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(tfrecord(records))
    assert [record.numpy() for record in tf.data.TFRecordDataset(str(path))] == records
