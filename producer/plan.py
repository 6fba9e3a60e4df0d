"""A folder → the job's plan: one `ShardTask` a shard, in the order of the plan, built only when it is asked for.

Last door of the submit. A plan of a million pairs is kept as columns of paths and numbers; the messages (pydantic
models of 1 KB a pair) are made one shard at a time.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from producer.lint import LintedFolder, lint_folder
from producer.reading import Pair, Progress
from producer.shards import cut_shards, number_sources
from shared.job import SPLITS, JobSpec, PathPair, ShardTask, Split, SplitPlan
from shared.labels import LabelMap
from shared.manifest import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTasks(Sequence[ShardTask]):
    """All tasks of a job. Each access builds a task anew.

    `cuts` are (split, index, count, indices into `pairs`) in the order of the plan.
    """

    job: str
    pairs: Sequence[Pair]
    fingerprints: Sequence[int]
    source_ids: Sequence[int]
    cuts: Sequence[tuple[Split, int, int, "array[int]"]]

    def __len__(self) -> int:
        return len(self.cuts)

    @overload
    def __getitem__(self, place: int) -> ShardTask: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[ShardTask]: ...
    def __getitem__(self, place: int | slice) -> ShardTask | Sequence[ShardTask]:
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        split, index, count, members = self.cuts[place]
        pairs = tuple(self._pair(member) for member in members)
        return ShardTask(job=self.job, split=split, index=index, count=count, pairs=pairs)

    def _pair(self, member: int) -> PathPair:
        image, annotation = self.pairs[member]
        return PathPair(
            image=image,
            annotation=annotation,
            source_id=self.source_ids[member],
            fingerprint=f"{self.fingerprints[member]:016x}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A plan and what lint found on the way. `fingerprint` is the hex SHA-256 of the data set as planned."""

    tasks: ShardTasks
    labels: LabelMap
    linted: LintedFolder
    fingerprint: str

    @property
    def counts(self) -> dict[str, int]:
        """What scan and lint counted."""
        return self.linted.counts

    @property
    def findings(self) -> Sequence[Finding]:
        """What lint found, sorted by file."""
        return self.linted.findings

    def split_plans(self, digests: Sequence[str]) -> dict[Split, SplitPlan]:
        """How the splits were cut, for `job.json`.

        Args:
            digests: Of each task's plan line, in the order of `tasks`; known once the plan is written.
        """
        plans: dict[Split, SplitPlan] = {}
        for split in SPLITS:
            places = [place for place, cut in enumerate(self.tasks.cuts) if cut[0] == split]
            if places:
                pairs = sum(len(self.tasks.cuts[place][3]) for place in places)
                plans[split] = SplitPlan(pairs=pairs, digests=tuple(digests[place] for place in places))
        return plans


@dataclass(slots=True)
class PlanLines:
    """The lines of `plan.jsonl`, streamed; `digests` has the digest of each line that was taken."""

    tasks: Sequence[ShardTask]
    digests: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[str]:
        self.digests.clear()
        for task in self.tasks:
            line = task.to_json()
            self.digests.append(hashlib.sha256(line.encode()).hexdigest())
            yield line


def plan_job(
    folder: Path,
    *,
    spec: JobSpec,
    job: str,
    progress: Progress | None = None,
    data_root: Path | None = None,
    strict: bool = False,
) -> PlannedJob:
    """Lint a folder and cut it into shards. Nothing is written.

    Args:
        folder: The VOC data set.
        spec: What the job asks.
        job: Its name.
        progress: Told (stage, done, total).
        data_root: Links may lead anywhere in it; `folder` itself by default.
        strict: Stop on any finding, not only on those of rank error.

    Raises:
        LintError: The set cannot be used as asked, or cannot be read.
    """
    linted = lint_folder(folder, spec=spec, progress=progress, data_root=data_root)
    linted.require_usable(strict=strict)
    return plan_linted(linted, job=job)


def plan_linted(linted: LintedFolder, *, job: str) -> PlannedJob:
    """Cut what lint found into shards.

    Raises:
        LintError: More pictures or shards than a job can have.
    """
    images = [image for image, _ in linted.pairs]
    members: dict[Split, array[int]] = {split: array("I") for split in SPLITS}
    for index, split in enumerate(linted.splits):
        if split is not None:
            members[split].append(index)
    cuts: list[tuple[Split, int, int, array[int]]] = []
    for split in SPLITS:
        shards = cut_shards(images, members[split], split=split, limit=linted.spec.shard_images, seed=linted.spec.seed)
        cuts.extend((split, index, len(shards), shard) for index, shard in enumerate(shards))
    tasks = ShardTasks(
        job=job,
        pairs=linted.pairs,
        fingerprints=linted.fingerprints,
        source_ids=number_sources(images),
        cuts=cuts,
    )
    return PlannedJob(tasks=tasks, labels=linted.labels, linted=linted, fingerprint=_fingerprint(linted))


def _fingerprint(linted: LintedFolder) -> str:
    """SHA-256 over every pair: paths, split, fingerprint."""
    digest = hashlib.sha256()
    for (image, annotation), split, fingerprint in zip(linted.pairs, linted.splits, linted.fingerprints, strict=True):
        digest.update(f"{image}\0{annotation}\0{split}\0{fingerprint:016x}\n".encode())
    return digest.hexdigest()
