"""A job's plan -> `contents.json`: a summary of what its shards hold, for finding shards to reuse.

It is a hint, not a proof: before anything is reused, `job.json` and the plan are read. It is written when the job is
submitted or, for a job of an older version, by the first process that looks for it.
"""

import hashlib
import heapq
import json
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from typing import Any, Final, Literal

from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.jobs.versioned import read_stored
from shared.specs.data import JobSpec
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name, canonical_json
from shared.storage import Storage

# If two jobs share a tenth of their pictures, a sample of 64 misses all of them in one case out of 800.
SAMPLED: Final = 64

# How many hex digits of a shard's digest are kept. After a match the whole digest is compared.
_DIGITS: Final = 16


class JobContents(Frozen):
    """What `contents.json` holds.

    `rules` is the job's `rules_digest`, `dataset` its folder, `pairs` its number of pairs. `shards` has the first
    digits of each shard's content digest, `sample` the smallest fingerprints of the pairs: as good as a random sample.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    incarnation: Incarnation = ""
    dataset: str
    rules: str
    pairs: int
    shards: tuple[str, ...]
    sample: tuple[str, ...]

    def may_have(self, beginnings: Set[str]) -> bool:
        """Whether one of these digests may be of a shard of this job; each is cut to its `beginning`."""
        return not beginnings.isdisjoint(self.shards)


def contents_of(storage: Storage, name: str) -> JobContents | None:
    """What the shards of the job `name` hold; None if there is no such job. Without `contents.json`, reads the plan.

    Raises:
        FormatError: The job cannot be read.
        StorageError: The plan cannot be read.
        ValueError, KeyError: The plan is damaged.
    """
    key = JobPaths(name).contents
    text = storage.read_or_none(key)
    if text is not None:
        with suppress(FormatError):
            return read_stored(JobContents, text, storage.url(key))
    job = find_job(storage, name)
    if job is None:
        return None
    contents = _read_contents(storage, job)
    with suppress(StorageError):  # the store may be read-only
        storage.write(key, contents.to_json().encode())
    return contents


def _read_contents(storage: Storage, job: Job) -> JobContents:
    shards, sample, number = [], set[str](), 0
    for _, content, pairs in planned_shards(storage, job):
        shards.append(beginning(content))
        number += len(pairs)
        sample = set(heapq.nsmallest(SAMPLED, sample | {str(pair["fingerprint"]) for pair in pairs}))
    return JobContents(
        job=job.job,
        incarnation=job.incarnation,
        dataset=job.dataset,
        rules=rules_digest(job.spec, job.labels, job.shard_format),
        pairs=number,
        shards=tuple(shards),
        sample=tuple(sorted(sample)),
    )


def beginning(content: str) -> str:
    """The part that is kept of the digest of a shard's content."""
    return content[:_DIGITS]


def planned_shards(storage: Storage, job: Job) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Name, content (hex SHA-256 of its pairs) and pairs of each shard of a plan, streamed.

    Raises:
        StorageError: The plan cannot be read.
        ValueError, KeyError: The plan is damaged.
    """
    for name, line in zip(job.shards, storage.lines(JobPaths(job.job).plan(job.incarnation)), strict=True):
        pairs = json.loads(line)["pairs"]
        yield name, hashlib.sha256(canonical_json(pairs).encode()).hexdigest(), pairs


def rules_digest(spec: JobSpec, labels: Sequence[str], shard_format: int) -> str:
    """Hex SHA-256 of everything except the pairs that decides a shard's bytes.

    Equal digests mean equal rules. Unequal ones may only mean that one version did not have an option yet.
    """
    rules = {"spec": spec.model_dump(mode="json"), "labels": list(labels), "shard_format": shard_format}
    return hashlib.sha256(canonical_json(rules).encode()).hexdigest()
