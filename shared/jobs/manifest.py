"""`manifest.json` of a finished job: the reconciler writes it, the trainer reads it."""

from typing import Literal

from shared.jobs.job import Split
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name


class ManifestShard(Frozen):
    """One shard file of a finished job, relative to the job's `shards/` folder."""

    file: str
    size_bytes: int
    sha256: str
    examples: int
    objects: int


class Manifest(Frozen):
    """`manifest.json`: what the trainer reads; written when every shard is done or has failed."""

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    incarnation: Incarnation = ""
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
