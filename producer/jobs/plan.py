"""What lint found -> the job's plan: one `ShardTask` per shard, written as `plan.jsonl` and read back from there.

A plan of a million pairs is kept as columns of paths and numbers; the tasks (pydantic models of 1 KB per pair) are
built one shard at a time.
"""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from producer.dataset.lint import LintedFolder
from producer.dataset.read_pairs import Pair
from producer.jobs.extend import earlier_shards, extend_cut
from producer.jobs.sharding import cut_shards, least_shards, number_sources
from shared.command import hint
from shared.errors import PlanError
from shared.jobs.job import SPLITS, Job, PathPair, ShardTask, Split, SplitPlan
from shared.jobs.paths import JobPaths
from shared.jobs.versioned import read_stored
from shared.storage import Storage
from shared.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTasks:
    """All tasks of a job in the order of the plan, built one by one.

    `cuts` are (split, index, count, indices into `pairs`). Without an `incarnation` two plans of the same folder are
    equal.
    """

    job: str
    pairs: Sequence[Pair]
    fingerprints: Sequence[int]
    source_ids: Sequence[int]
    cuts: Sequence[tuple[Split, int, int, "array[int]"]]
    incarnation: str = ""

    def __len__(self) -> int:
        return len(self.cuts)

    def __iter__(self) -> Iterator[ShardTask]:
        job, incarnation = self.job, self.incarnation
        for split, index, count, members in self.cuts:
            pairs = tuple(map(self._pair, members))
            yield ShardTask(job=job, incarnation=incarnation, split=split, index=index, count=count, pairs=pairs)

    def _pair(self, member: int) -> PathPair:
        image, annotation = self.pairs[member]
        fingerprint = f"{self.fingerprints[member]:016x}"
        return PathPair(image=image, annotation=annotation, source_id=self.source_ids[member], fingerprint=fingerprint)

    def split_plans(self, digests: Sequence[str]) -> dict[Split, SplitPlan]:
        """How the splits were cut, for `job.json`; `digests` are those of the plan's lines, in the same order."""
        plans: dict[Split, SplitPlan] = {}
        for split in SPLITS:
            own = [(len(cut[3]), digest) for cut, digest in zip(self.cuts, digests, strict=True) if cut[0] == split]
            if own:
                plans[split] = SplitPlan(pairs=sum(pairs for pairs, _ in own), digests=tuple(line for _, line in own))
        return plans


def plan_job(linted: LintedFolder, *, job: str, incarnation: str = "", storage: Storage | None = None) -> ShardTasks:
    """Cut what lint found into the shards of the job named `job`, like a job of `storage` that it extends.

    Raises:
        LintError: More pictures or shards than a job can have.
    """
    images, limit = [image for image, _ in linted.pairs], linted.spec.shard_images
    source_ids = number_sources(images)
    earlier = earlier_shards(linted, source_ids, job=job, storage=storage) if storage is not None else {}
    cuts: list[tuple[Split, int, int, array[int]]] = []
    for split in SPLITS:
        members = array("I", (index for index, assigned in enumerate(linted.splits) if assigned == split))
        shards = cut_shards(images, members, split=split, limit=limit, seed=linted.spec.seed)
        if earlier.get(split):
            least = least_shards(len(members), split=split, limit=limit)
            shards = extend_cut(shards, earlier[split], limit=limit, least=least)
        cuts.extend((split, index, len(shards), shard) for index, shard in enumerate(shards))
    return ShardTasks(
        job=job,
        pairs=linted.pairs,
        fingerprints=linted.fingerprints,
        source_ids=source_ids,
        cuts=cuts,
        incarnation=incarnation,
    )


def dataset_digest(linted: LintedFolder) -> str:
    """Hex SHA-256 over every pair of the data set: paths, split, fingerprint."""
    digest = hashlib.sha256()
    for (image, annotation), split, fingerprint in zip(linted.pairs, linted.splits, linted.fingerprints, strict=True):
        digest.update(f"{image}\0{annotation}\0{split}\0{fingerprint:016x}\n".encode())
    return digest.hexdigest()


@dataclass(slots=True)
class PlanLines:
    """The lines of `plan.jsonl`, streamed; `digests` has the hex SHA-256 of each line that was read so far."""

    tasks: Iterable[ShardTask]
    digests: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        self.digests.clear()
        for task in self.tasks:
            line = task.to_json()
            self.digests.append(hashlib.sha256(line.encode()).hexdigest())
            yield line


class PlanReader:
    """The tasks of a submitted job by ordinal. Keeps the byte offsets of the plan's lines, not their text."""

    def __init__(self, storage: Storage, job: Job) -> None:
        """Read through the plan; a PlanError if its number of lines is not the number of shards in `job.json`."""
        self._storage, self._job = storage, job
        self._key = JobPaths(job.job).plan(job.incarnation)
        sizes = (len(line) + 1 for line in storage.lines(self._key))
        self._offsets = array("Q", accumulate(sizes, initial=0))
        lines, shards = len(self._offsets) - 1, len(job.shards)
        if lines != shards:
            raise PlanError(
                f"{storage.url(self._key)} has {counted(lines, 'line')}, job.json lists {counted(shards, 'shard')}: "
                f"restore the file, or `{hint('rm', job.job, store=storage)}` and submit anew"
            )

    def task(self, ordinal: int) -> ShardTask:
        """The task of the shard at `ordinal`.

        Raises:
            PlanError: The line's digest is not the one that `job.json` lists.
            FormatError: The line is of another version, or damaged.
        """
        start, end = self._offsets[ordinal], self._offsets[ordinal + 1]
        where = f"{self._storage.url(self._key)}, line {ordinal + 1}"
        task = read_stored(ShardTask, self._storage.read_range(self._key, start, end - start - 1), where)
        if task.digest() != self._job.task_digest(task.shard):
            raise PlanError(f"{where}: its digest is not the one in job.json")
        return task
