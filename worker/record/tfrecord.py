"""Records -> the bytes of a TFRecord file, and back, without TensorFlow.

Each record is framed as: length (uint64), masked CRC32C of the length (uint32), the record, masked CRC32C of the
record (uint32), all little endian. Source: tensorflow/core/lib/io/record_writer.h and record_reader.h.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import google_crc32c

from shared.errors import ShardError

_LENGTH: Final = struct.Struct("<Q")
_CRC: Final = struct.Struct("<I")
_HEAD_BYTES: Final = _LENGTH.size + _CRC.size
# CRCs are masked because a CRC over bytes that hold CRCs is weak (tensorflow/core/lib/hash/crc32c.h).
_MASK_DELTA: Final = 0xA282EAD8


def masked_crc32c(content: bytes) -> int:
    """CRC32C of `content`, rotated right by 15 bits plus a constant, as TensorFlow stores it."""
    crc: int = google_crc32c.value(content)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def tfrecord(records: Iterable[bytes]) -> bytes:
    """`records` as a TFRecord file; each record is copied once, into the result."""
    return b"".join(part for record in records for part in _frame(record))


def _frame(record: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    length = _LENGTH.pack(len(record))
    return length, _CRC.pack(masked_crc32c(length)), record, _CRC.pack(masked_crc32c(record))


def read_records(content: bytes, *, file: str) -> Iterator[bytes]:
    """The records of a TFRecord file, each checked.

    Raises:
        ShardError: The file is truncated, or a checksum differs; the message names the record's number and byte.
    """
    position, number = 0, 0
    while position < len(content):
        where = f"{file}: record {number} at byte {position}"
        if position + _HEAD_BYTES > len(content):
            raise ShardError(f"{where}: the file ends within its length")
        length_bytes = content[position : position + _LENGTH.size]
        if _CRC.unpack_from(content, position + _LENGTH.size)[0] != masked_crc32c(length_bytes):
            raise ShardError(f"{where}: the checksum of its length differs")
        start = position + _HEAD_BYTES
        end = start + _LENGTH.unpack(length_bytes)[0]
        if end + _CRC.size > len(content):
            raise ShardError(f"{where}: the file ends within the record")
        record = content[start:end]
        if _CRC.unpack_from(content, end)[0] != masked_crc32c(record):
            raise ShardError(f"{where}: its checksum differs")
        yield record
        position, number = end + _CRC.size, number + 1
