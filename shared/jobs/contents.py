"""A job's plan -> `contents.json`: what its shards hold, in short, for whoever looks for shards to reuse.

A hint and no proof: whoever finds something here reads `job.json` and the plan before anything is reused. It is written
at the job's submit, or by the first one that comes across a job of a version that did not.
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

# Of a job that has a tenth of another's pictures, 64 of them show none in one of 800 cases.
SAMPLED: Final = 64

# Hex digits that are kept of a shard's digest: whoever finds one here compares the whole of it.
_DIGITS: Final = 16


class JobContents(Frozen):
    """What `contents.json` holds.

    `rules` is `rules_digest` of the job, `dataset` its folder, `pairs` their number. `shards` are the beginnings of the
    digests of what each shard holds, `sample` the smallest fingerprints of the pairs, which is as good as a draw.
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
        """Whether a shard holds one of these, the `beginning` of each."""
        return not beginnings.isdisjoint(self.shards)


def contents_of(storage: Storage, name: str) -> JobContents | None:
    """What the shards of the job `name` hold, None where there is no such job; the first time its plan is read.

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
    with suppress(StorageError):  # a store that may only be read
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
    """What is kept of the digest of a shard's content."""
    return content[:_DIGITS]


def planned_shards(storage: Storage, job: Job) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Name, content (hex SHA-256 of its pairs) and pairs of each shard of a plan, streamed.

    Raises:
        StorageError: The plan cannot be read.
        ValueError, KeyError: It is damaged.
    """
    for name, line in zip(job.shards, storage.lines(JobPaths(job.job).plan(job.incarnation)), strict=True):
        pairs = json.loads(line)["pairs"]
        yield name, hashlib.sha256(canonical_json(pairs).encode()).hexdigest(), pairs


def rules_digest(spec: JobSpec, labels: Sequence[str], shard_format: int) -> str:
    """Hex SHA-256 of all but the pairs that decides a shard's bytes.

    Equal digests mean equal rules. Unequal ones may mean a version that did not know an option yet.
    """
    rules = {"spec": spec.model_dump(mode="json"), "labels": list(labels), "shard_format": shard_format}
    return hashlib.sha256(canonical_json(rules).encode()).hexdigest()
