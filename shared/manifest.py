"""`ShardReceipt`, the one proof that a shard exists, and the manifest of a finished job; write, read, verify.

Stands after the shard on the route: the worker writes receipts, the reconciler the manifest, the trainer reads it.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from shared.errors import ShardError
from shared.job import SCHEMA_VERSION, Frozen, Name, Split
from shared.storage import Storage
from shared.stored import read_stored

Rank = Literal["info", "mended", "dropped", "quarantined", "error"]


class Finding(Frozen):
    """One line of the lint report: what was found in which file, and what was done.

    `object_index` counts the direct `object` children from 1; None speaks of the file as a whole.
    `kind` is a fixed name such as `box_clipped`; every kind is also a counter.
    """

    file: str
    object_index: int | None = None
    rank: Rank
    kind: str
    found: str
    done: str


class ShardReceipt(Frozen):
    """`shards/<shard>.json`: the commit point of a shard, written after its files.

    Every pair of the task is in exactly one of the counters `written`, `quarantined` (their sum is the number of
    pairs); `counters` holds the rest, by kind of finding. A dry task (lint) has no files: their fields are None.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    shard: str
    split: Split
    index: int
    count: int
    task_digest: str
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


class ManifestShard(Frozen):
    """One shard file of a finished job, relative to the job's `shards/` folder."""

    file: str
    size_bytes: int
    sha256: str
    examples: int
    objects: int


class Manifest(Frozen):
    """`manifest.json`: what the trainer reads. Written when every shard is done or failed."""

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    request_digest: str
    labels: tuple[str, ...]
    image_size: int
    resize: Literal["stretch", "letterbox"]
    splits: dict[Split, tuple[ManifestShard, ...]]
    failed: tuple[str, ...]
    counters: dict[str, int]
    class_counts: dict[Split, dict[str, int]]

    def examples(self, split: Split) -> int:
        """Number of records in `split`."""
        return sum(shard.examples for shard in self.splits.get(split, ()))


class JobPaths:
    """Where the files of one job lie in a store (keys relative to its root)."""

    def __init__(self, job: str) -> None:
        self.root: Final = f"jobs/{job}"
        self.job: Final = f"{self.root}/job.json"
        self.plan: Final = f"{self.root}/plan.jsonl"
        self.shards: Final = f"{self.root}/shards"
        self.cancelled: Final = f"{self.root}/cancelled.json"
        self.failed: Final = f"{self.root}/failed"
        self.reused: Final = f"{self.root}/reused.json"
        self.manifest: Final = f"{self.root}/manifest.json"
        self.dataset_info: Final = f"{self.root}/dataset_info.json"
        self.features: Final = f"{self.root}/features.json"
        self.label_map: Final = f"{self.root}/label_map.pbtxt"
        self.labels: Final = f"{self.root}/labels.txt"
        self.lint: Final = f"{self.root}/lint.csv"
        self.submit_findings: Final = f"{self.root}/findings.jsonl"

    def tfrecord(self, shard: str) -> str:
        """The shard's records."""
        return f"{self.shards}/{shard}.tfrecord"

    def shard_annotations(self, shard: str) -> str:
        """The shard's images and boxes, one COCO-form JSON object `{"images": [...], "annotations": [...]}`."""
        return f"{self.shards}/{shard}.coco.json"

    def receipt(self, shard: str) -> str:
        """The shard's receipt, its commit point."""
        return f"{self.shards}/{shard}.json"

    def failure(self, shard: str) -> str:
        """Why a shard was given up."""
        return f"{self.failed}/{shard}.json"

    def annotations(self, split: str) -> str:
        """The split's images and boxes in COCO form."""
        return f"{self.root}/annotations_{split}.json"

    def split_list(self, split: str) -> str:
        """The paths of the split's pictures, one a line."""
        return f"{self.root}/splits/{split}.txt"


class RunPaths:
    """Where the files of one run lie in a store (keys relative to its root)."""

    def __init__(self, run: str) -> None:
        self.root: Final = f"runs/{run}"
        self.request: Final = f"{self.root}/request.json"
        self.run: Final = f"{self.root}/run.json"
        self.cancelled: Final = f"{self.root}/cancelled.json"
        self.failed: Final = f"{self.root}/failed.json"
        self.metrics: Final = f"{self.root}/metrics.json"


def read_receipt(storage: Storage, job: str, shard: str) -> ShardReceipt | None:
    """The receipt of `shard`, or None where it is not done.

    Raises:
        FormatError: It is of another version, or damaged.
    """
    key = JobPaths(job).receipt(shard)
    text = storage.read_or_none(key)
    return None if text is None else read_stored(ShardReceipt, text, storage.url(key))


def shards_done(storage: Storage, job: str) -> Iterator[str]:
    """Names of the shards of `job` that have a receipt, from one listing."""
    for name in storage.list_names(JobPaths(job).shards):
        if name.endswith(".json") and not name.endswith(".coco.json"):
            yield name.removesuffix(".json")


def check_shard(storage: Storage, receipt: ShardReceipt, *, with_digest: bool) -> None:
    """Hold a shard's file against its receipt.

    Raises:
        ShardError: The file is absent, or its size (with `with_digest` also its SHA-256) is another.
    """
    if receipt.size_bytes is None:
        return
    check_file(
        storage,
        JobPaths(receipt.job).tfrecord(receipt.shard),
        receipt.size_bytes,
        receipt.sha256 if with_digest else None,
    )


def check_file(storage: Storage, key: str, size_bytes: int, sha256: str | None) -> None:
    """Hold the file at `key` against a size in bytes and, unless None, a hex SHA-256.

    Raises:
        ShardError: It is absent or differs.
    """
    size = storage.size_or_none(key)
    if size != size_bytes:
        raise ShardError(
            f"{storage.url(key)}: expected {size_bytes} bytes, found {'no file' if size is None else f'{size} bytes'}"
        )
    if sha256 is not None:
        digest = hashlib.sha256(storage.read(key)).hexdigest()
        if digest != sha256:
            raise ShardError(f"{storage.url(key)}: SHA-256 is {digest[:12]}…, the receipt says {sha256[:12]}…")
