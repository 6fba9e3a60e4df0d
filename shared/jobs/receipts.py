"""`ShardReceipt`, the one proof that a shard exists, and the comparison of files with it.

The worker writes receipts after their shards; the reconciler and the trainer read them.
"""

import hashlib
import operator
from typing import Literal

from pydantic import Field

from shared.errors import ShardError
from shared.jobs.findings import Finding
from shared.jobs.job import Split
from shared.jobs.paths import JobPaths
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name, ShardFormat
from shared.storage import Storage


class ShardReceipt(Frozen):
    """`shards/<shard>.json`: the commit point of a shard, written after its files.

    Every pair of the task is counted in either `written` or `quarantined`; `counters` counts the findings by kind.
    A dry task (lint) has no files: their fields are None. `shard_format` is that of the worker, whose version may
    differ from that of the program that accepted the job. `hashes` has the perceptual hash (64 hex digits) of each
    picture in the order of the task, "" if it has none; in receipts of older versions it is empty.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    incarnation: Incarnation = ""
    shard: str
    split: Split
    index: int
    count: int
    task_digest: str
    shard_format: ShardFormat = 0
    attempt: int = Field(ge=1)
    size_bytes: int | None
    sha256: str | None
    annotations_sha256: str | None
    written: int = Field(ge=0)
    quarantined: int = Field(ge=0)
    background: int = Field(ge=0)
    objects_read: int = Field(ge=0)
    objects_written: int = Field(ge=0)
    class_counts: dict[str, int]
    counters: dict[str, int]
    findings: tuple[Finding, ...]
    hashes: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)


def check_shard(storage: Storage, receipt: ShardReceipt, *, with_digest: bool) -> None:
    """Compare a shard's file with its receipt.

    Raises:
        ShardError: The file is absent, or its size (with `with_digest` also its SHA-256) differs.
    """
    if receipt.size_bytes is not None:
        key = JobPaths(receipt.job).tfrecord(receipt.shard)
        check_file(storage, key, receipt.size_bytes, receipt.sha256 if with_digest else None)


def check_file(storage: Storage, key: str, size_bytes: int, sha256: str | None) -> None:
    """Compare the file at `key` with a size in bytes and, unless None, a hex SHA-256.

    Raises:
        ShardError: It is absent or differs.
    """
    size = storage.size_or_none(key)
    if size != size_bytes:
        found = "no file" if size is None else f"{size} bytes"
        raise ShardError(f"{storage.url(key)}: expected {size_bytes} bytes, found {found}")
    if sha256 is not None:
        digest = hashlib.sha256(storage.read(key)).hexdigest()
        if digest != sha256:
            raise ShardError(f"{storage.url(key)}: SHA-256 is {digest[:12]}…, the receipt says {sha256[:12]}…")
