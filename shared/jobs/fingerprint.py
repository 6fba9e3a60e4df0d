"""The two files of a pair -> 64 bits that change when either file does; the producer plans with them, workers check.

Of a picture only the size and the first and last 4 KiB count, because the producer may have a million of them to read:
another picture is noticed, a change in the middle that keeps the size is not. Plans in the store hold these values, so
they must stay the same.
"""

import hashlib
import os
from typing import Final, NamedTuple

END_BYTES: Final = 4096


class Sample(NamedTuple):
    """What identifies a picture: `digest`, 8 bytes made of its size and ends, and `head`, its first 4 KiB."""

    digest: bytes
    head: bytes


def fingerprint_pair(xml: bytes, sample: bytes) -> bytes:
    """The 8-byte fingerprint of a pair, from its whole XML and its picture's sample; b"" stands for a missing part."""
    return hash_parts(xml, sample)


def sample_file(path: str) -> Sample:
    """The sample of a file; nothing between its ends is read.

    Raises:
        OSError: The file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, END_BYTES, 0)
        tail = os.pread(descriptor, END_BYTES, _tail_start(size))
    finally:
        os.close(descriptor)
    return sample_ends(size, head, tail)


def sample_content(content: bytes) -> Sample:
    """What `sample_file` returns for a file that holds `content`."""
    return sample_ends(len(content), content, content[_tail_start(len(content)) :])


def sample_span(size_bytes: int) -> tuple[int, int]:
    """(start, end) of the last bytes of a file that count; start is not below end if the first bytes are all it has."""
    return _tail_start(size_bytes), size_bytes


def sample_ends(size_bytes: int, head: bytes, tail: bytes) -> Sample:
    """What `sample_file` returns for a file of this size that begins with `head` and has `tail` at `sample_span`."""
    head = head[:END_BYTES]
    return Sample(hash_parts(size_bytes.to_bytes(8, "big"), head, tail), head)


def hash_parts(*parts: bytes) -> bytes:
    """64 bits of BLAKE2b over the parts and their lengths."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _tail_start(size: int) -> int:
    """Where the last bytes begin: not before the end of the first ones."""
    return max(END_BYTES, size - END_BYTES)
