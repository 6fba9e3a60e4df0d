"""Shards that a job of the same store has written already -> the same files in a new job, each with its receipt last.

Part of `submit`, after `job.json`: workers write what is not reused. A shard's bytes follow from its pairs (paths,
source ids, fingerprints), the job's options and labels, and the program's shard format; where all of these are equal
and no picture was changed since the other job (the lender) was submitted, workers would write the very same bytes.
"""

import logging
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from producer.finalize.dataset_files import check_annotations
from producer.jobs.control import note_of
from producer.photos import Photos, photos_in
from producer.progress import Progress
from shared import faults
from shared.command import hint
from shared.errors import AnnotationError, ImageUnsupported, PairChanged, PipelineError
from shared.jobs.contents import JobContents, beginning, contents_of, planned_shards, rules_digest
from shared.jobs.identity import find_job, is_name, read_receipt
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt, check_shard
from shared.specs.data import JobSpec
from shared.specs.options import options_of
from shared.storage import DataFolder, Storage

logger = logging.getLogger(__name__)

# What a worker found that may be otherwise now. XML that the submit could read has changed since.
_PASSING: Final = frozenset({PairChanged.kind, AnnotationError.kind, ImageUnsupported.kind})

_CHANGED: Final = "photos were added, changed or removed"
# The same photos were submitted from another folder.
_MOVED: Final = f"{_CHANGED}, or lie at other paths below the folder"
_NO_OTHER: Final = "no other job has photos at these paths with these annotations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How many shards were reused, of which jobs, and why the others were not: one line of reasons for a person."""

    shards: int
    lenders: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(slots=True)
class _Loan:
    """What is known while the jobs of a store are asked: contents still needed, who lent, and why others did not.

    `kin` are the jobs of the same photos, `changed` is what to say where one of them has no shard that is needed.
    """

    sample: frozenset[str]
    missing: dict[str, str]
    lenders: Counter[str]
    refusals: list[tuple[int, str]]
    held_back: dict[str, str]
    kin: set[str] = field(default_factory=set)
    changed: str = ""

    def reasons(self) -> tuple[str, ...]:
        """Why shards are missing still."""
        if not self.missing:
            return ()
        held = {self.held_back[content] for content in self.missing if content in self.held_back}
        is_other = not self.missing.keys() <= self.held_back.keys() and bool(self.changed or self.lenders)
        told = self.changed if self.changed and not self.lenders else _CHANGED
        changed = [told] if is_other else []
        # Of the jobs with other options, the nearest one says enough.
        nearest = [] if changed else [text for _, text in sorted(self.refusals, key=itemgetter(0))[:1]]
        return (*changed, *sorted(held), *nearest)

    def note_kin(self, contents: JobContents, dataset: str) -> bool:
        """Whether a job is of the photos that are asked about, in their folder `dataset` or where they lay before."""
        shared = 2 * len(self.sample.intersection(contents.sample))
        is_kin = contents.dataset == dataset or shared >= max(1, min(len(self.sample), len(contents.sample)))
        self.kin.update([contents.job] if is_kin else [])
        return is_kin

    def note_changed(self, dataset: str, lender: str) -> None:
        """Note that a job of the same photos, submitted from the folder `lender`, has other shards of them."""
        self.changed = _CHANGED if dataset == lender else self.changed or _MOVED


def reuse_shards(job: Job, *, storage: Storage, folder: DataFolder, progress: Progress) -> Reuse:
    """Reuse every shard that another job of the store has with the same content. Safe to repeat.

    The plan of the new `job` is in the store; `folder` is the data set, to see which pictures were changed since.
    """
    names = (
        [name for name in storage.list_names("jobs") if is_name(name) and name != job.job] if not job.spec.dry else []
    )
    missing = _missing_shards(job, storage) if names else dict.fromkeys(job.shards, "")
    contents = contents_of(storage, job.job) if names else None  # noted for those who come later
    sample = frozenset(contents.sample if contents is not None else ())
    loan = _Loan(sample=sample, missing=missing, lenders=Counter(), refusals=[], held_back={})
    photos = photos_in(folder)
    rules = rules_digest(job.spec, job.labels, job.shard_format)
    for name in names:
        if not loan.missing:
            break
        try:
            lender = _lender(name, job, rules, loan, storage)
            if lender is not None:
                _borrow(job, lender, loan, storage=storage, photos=photos, progress=progress)
        except (PipelineError, ValueError, KeyError) as error:
            logger.warning("lender_unreadable", extra={"job": name, "reason": str(error)})
    lent = loan.lenders
    if lent:
        storage.write(JobPaths(job.job).reused, note_of(job, shards=lent.total(), lenders=", ".join(lent)))
    none = (_NO_OTHER if names else "the store has no other job",) if loan.missing else ()
    return Reuse(shards=lent.total(), lenders=tuple(lent), reasons=loan.reasons() or none)


def _lender(name: str, job: Job, rules: str, loan: _Loan, storage: Storage) -> Job | None:
    """The job `name` where it may have a missing shard, or a reason against it has to be found; None for most jobs."""
    contents = contents_of(storage, name)
    if contents is None:
        return None
    is_kin = loan.note_kin(contents, job.dataset)
    if not contents.may_have({beginning(content) for content in loan.missing}):
        if is_kin and contents.rules == rules:
            loan.note_changed(job.dataset, contents.dataset)
            return None
        if not is_kin:
            return None
    return find_job(storage, name)


def _borrow(job: Job, lender: Job, loan: _Loan, *, storage: Storage, photos: Photos, progress: Progress) -> None:
    """Reuse what `lender` has of the missing shards, or note why it lends none."""
    reason = why_not(job.spec, job.labels, job.shard_format, lender)
    is_kin = lender.job in loan.kin
    if reason is not None:
        differing = len(_differing_options(job.spec, lender.spec))
        loan.refusals += [(differing, f"{lender.job} has {reason}")] if is_kin and not lender.spec.dry else []
        return
    if is_kin:
        loan.note_changed(job.dataset, lender.dataset)
    for content, receipt in _matching_shards(loan.missing.keys(), lender, job, storage, photos):
        if isinstance(receipt, str):
            loan.held_back[content] = receipt
            continue
        _reuse_shard(job, loan.missing.pop(content), receipt, storage)
        loan.lenders[lender.job] += 1
        progress("reusing shards", loan.lenders.total(), len(job.shards))
        faults.reached("submit:after_reuse_of_one")


def why_not(spec: JobSpec, labels: Sequence[str], shard_format: int, lender: Job) -> str | None:
    """Why no shard of `lender` can have the bytes that a job of these options needs, or None where some may."""
    if lender.shard_format != shard_format:
        return _other_format(shard_format, lender)
    differing = _differing_options(spec, lender.spec)
    if differing:
        return f"other options ({', '.join(differing)})"
    if tuple(lender.labels) != tuple(labels):
        return f"other classes ({', '.join(sorted(set(labels) ^ set(lender.labels)))})"
    return None


def _differing_options(spec: JobSpec, theirs: JobSpec) -> list[str]:
    """The options in which `theirs` is another than `spec`, as a person types them."""
    options = {option.path[0]: option for option in options_of(JobSpec)}
    typed = []
    for name, ours in dict(spec).items():  # a dump leaves out what is as in older versions
        value, option = getattr(theirs, name), options.get(name)
        if value == ours:
            continue
        if option is None:
            typed.append(f"{name} {value}")
        else:
            typed.append(shlex.join(option.typed(value)) if value not in (None, (), {}) else f"no {option.flags}")
    return typed


def _other_format(shard_format: int, lender: Job) -> str:
    program, ours = lender.made_by or "an older version", f"this version writes format {shard_format}"
    if not lender.shard_format:
        return f"shards of a format that {program} did not note; {ours}"
    return f"shards of format {lender.shard_format} ({program}); {ours}"


def _missing_shards(job: Job, storage: Storage) -> dict[str, str]:
    """Content -> name, of the shards of `job` without a receipt."""
    return {
        content: name for name, content, _ in planned_shards(storage, job) if read_receipt(storage, job, name) is None
    }


def _matching_shards(
    contents: Collection[str], lender: Job, job: Job, storage: Storage, photos: Photos
) -> Iterator[tuple[str, ShardReceipt | str]]:
    """The shards of `lender` whose content is in `contents` at that moment; or, of such a one, why it is not lent."""
    submitted_at = storage.written_at(JobPaths(lender.job).job)
    for name, content, pairs in planned_shards(storage, lender):
        if content not in contents:
            continue
        receipt = read_receipt(storage, lender, name)
        if receipt is None:
            yield content, f"{lender.job} has not written them"
        elif receipt.shard_format != job.shard_format or not _is_repeatable(receipt):
            yield content, f"of what {lender.job} wrote, some might be written otherwise now"
        elif _has_changed(photos, pairs, submitted_at):
            yield content, f"photos were written or moved after {lender.job} was submitted"
        else:
            yield content, _checked(storage, lender, receipt)


def _checked(storage: Storage, lender: Job, receipt: ShardReceipt) -> ShardReceipt | str:
    """The receipt if its files are those that it says, otherwise why they are not lent."""
    try:
        check_shard(storage, receipt, with_digest=True)
        check_annotations(storage, receipt)
    except PipelineError as error:
        logger.warning("shard_not_lent", extra={"job": lender.job, "shard": receipt.shard, "reason": str(error)})
        return f"files of {lender.job} do not hold: {hint('doctor', lender.job, store=storage)}"
    return receipt


def _is_repeatable(receipt: ShardReceipt) -> bool:
    """Whether workers would quarantine the same pictures again.

    A picture on which a process died or gave up in a second attempt may be read the next time, files that had changed
    may have been put back, and the library that was missing may be there.
    """
    return receipt.quarantined == 0 or (receipt.attempt == 1 and _PASSING.isdisjoint(receipt.counters))


def _has_changed(photos: Photos, pairs: list[dict[str, Any]], since: float) -> bool:
    """Whether a picture was written, replaced or moved after `since`: its fingerprint covers only its size and ends."""
    try:
        return any(photos.changed_at(pair["image"]) >= since for pair in pairs)
    except OSError:
        return True


def _reuse_shard(job: Job, shard: str, lent: ShardReceipt, storage: Storage) -> None:
    """Give the lender's files their names in `job`, the receipt last. Others may write the same bytes meanwhile."""
    theirs, ours = JobPaths(lent.job), JobPaths(job.job)
    storage.link(theirs.tfrecord(lent.shard), ours.tfrecord(shard))
    storage.link(theirs.shard_annotations(lent.shard), ours.shard_annotations(shard))
    split, index, count = job.place(shard)
    names = {"job": job.job, "incarnation": job.incarnation, "shard": shard, "task_digest": job.task_digest(shard)}
    receipt = lent.model_copy(update={**names, "split": split, "index": index, "count": count})
    storage.write(ours.receipt(shard), receipt.to_json().encode())
