"""Receipts and the files that they prove."""

import hashlib
from pathlib import Path

import pytest

from shared.errors import ShardError
from shared.jobs.findings import Finding
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt, check_shard
from shared.storage import Storage

CONTENT = b"records"


def receipt(**changes: object) -> ShardReceipt:
    values = {
        "job": "job",
        "shard": "train-00000-of-00001",
        "split": "train",
        "index": 0,
        "count": 1,
        "task_digest": "d",
        "attempt": 1,
        "size_bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "annotations_sha256": "a",
        "written": 1,
        "quarantined": 0,
        "background": 0,
        "objects_read": 1,
        "objects_written": 1,
        "class_counts": {"x": 1},
        "counters": {},
        "findings": (),
    }
    return ShardReceipt.model_validate(values | changes)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    made = Storage(str(tmp_path))
    paths = JobPaths("job")
    made.write(paths.tfrecord("train-00000-of-00001"), CONTENT)
    made.write(paths.shard_annotations("train-00000-of-00001"), b"{}")
    return made


def test_shard_that_matches_its_receipt_passes(storage: Storage) -> None:
    check_shard(storage, receipt(), with_digest=True)
    assert storage.exists(JobPaths("job").tfrecord("train-00000-of-00001"))


def test_flipped_bit_is_found_by_the_digest_only(storage: Storage) -> None:
    storage.write(JobPaths("job").tfrecord("train-00000-of-00001"), b"recordz")
    check_shard(storage, receipt(), with_digest=False)
    with pytest.raises(ShardError, match="SHA-256"):
        check_shard(storage, receipt(), with_digest=True)


def test_truncated_or_absent_shard_is_found_by_its_size(storage: Storage) -> None:
    with pytest.raises(ShardError, match="expected 8 bytes, found 7 bytes"):
        check_shard(storage, receipt(size_bytes=8), with_digest=False)
    storage.remove(JobPaths("job").tfrecord("train-00000-of-00001"))
    with pytest.raises(ShardError, match="found no file"):
        check_shard(storage, receipt(), with_digest=False)


def test_a_finding_without_a_class_is_the_text_that_it_was_before_there_were_classes() -> None:
    text = '{"done":"d","file":"f","found":"x","kind":"k","object_index":1,"rank":"info"}'
    of_before = Finding.model_validate_json(text)
    assert of_before.to_json() == text
    with_class = of_before.model_copy(update={"class_name": "cat"})
    assert Finding.model_validate_json(with_class.to_json()) == with_class
