"""Shards that another job of the same store has written already -> the same files in a new job, the receipts last.

Part of `submit`, after `job.json` is written: workers write what is not reused. A shard's bytes follow from its pairs
(paths, source ids, fingerprints), the job's options and labels, and the program's shard format. If all of these are
equal and no picture was changed since the other job (the lender) was submitted, workers would write the same bytes.
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

# Faults that a worker found but that may be gone now. XML that the submit could read must have changed since.
_PASSING: Final = frozenset({PairChanged.kind, AnnotationError.kind, ImageUnsupported.kind})

_CHANGED: Final = "photos were added, changed or removed"
# The same photos were submitted from another folder.
_MOVED: Final = f"{_CHANGED}, or have other paths below the folder"
_NO_OTHER: Final = "no other job has photos at these paths with these annotations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """How many shards were reused, from which jobs, and the reasons why the others were not, for a person."""

    shards: int
    lenders: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(slots=True)
class _Loan:
    """What is known while the jobs of a store are asked: shards still `missing`, who lent, and why others did not.

    `missing` is content -> shard name, and `held_back` is content -> why the shard is not lent. `refusals` are of jobs
    with other options: how many differ, and the text. `kin` are the jobs of the same photos; `changed` is what to say
    if such a job has none of the missing shards.
    """

    sample: frozenset[str]
    missing: dict[str, str]
    lenders: Counter[str]
    refusals: list[tuple[int, str]]
    held_back: dict[str, str]
    kin: set[str] = field(default_factory=set)
    changed: str = ""

    def reasons(self) -> tuple[str, ...]:
        """Why shards are still missing."""
        if not self.missing:
            return ()
        held = {self.held_back[content] for content in self.missing if content in self.held_back}
        is_other = not self.missing.keys() <= self.held_back.keys() and bool(self.changed or self.lenders)
        told = self.changed if self.changed and not self.lenders else _CHANGED
        changed = [told] if is_other else []
        # If several jobs have other options, it is enough to name the most similar one.
        nearest = [] if changed else [text for _, text in sorted(self.refusals, key=itemgetter(0))[:1]]
        return (*changed, *sorted(held), *nearest)

    def note_kin(self, contents: JobContents, dataset: str) -> bool:
        """Whether a job has the same photos, in the folder `dataset` or where they were before; if so, note it."""
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
    contents = contents_of(storage, job.job) if names else None  # this also notes them for later jobs
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
    """The job `name` if it may have a missing shard or has to be asked why it has none; None for most jobs."""
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
    """Why no shard of `lender` can have the bytes that a job with these options needs, or None if some may."""
    if lender.shard_format != shard_format:
        return _other_format(shard_format, lender)
    differing = _differing_options(spec, lender.spec)
    if differing:
        return f"other options ({', '.join(differing)})"
    if tuple(lender.labels) != tuple(labels):
        return f"other classes ({', '.join(sorted(set(labels) ^ set(lender.labels)))})"
    return None


def _differing_options(spec: JobSpec, theirs: JobSpec) -> list[str]:
    """The options in which `theirs` differs from `spec`, as a person would type those of `theirs`."""
    options = {option.path[0]: option for option in options_of(JobSpec)}
    typed = []
    for name, ours in dict(spec).items():  # not `model_dump`, which leaves out newer options at their defaults
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
    """Content -> name, for the shards of `job` without a receipt."""
    return {
        content: name for name, content, _ in planned_shards(storage, job) if read_receipt(storage, job, name) is None
    }


def _matching_shards(
    contents: Collection[str], lender: Job, job: Job, storage: Storage, photos: Photos
) -> Iterator[tuple[str, ShardReceipt | str]]:
    """For each shard of `lender` whose content is still in `contents`: the content, and the receipt or why not lent."""
    submitted_at = storage.written_at(JobPaths(lender.job).job)
    for name, content, pairs in planned_shards(storage, lender):
        if content not in contents:
            continue
        receipt = read_receipt(storage, lender, name)
        if receipt is None:
            yield content, f"{lender.job} has not written them"
        elif receipt.shard_format != job.shard_format or not _is_repeatable(receipt):
            yield content, f"some of what {lender.job} wrote might be written differently now"
        elif _has_changed(photos, pairs, submitted_at):
            yield content, f"photos were written or moved after {lender.job} was submitted"
        else:
            yield content, _checked(storage, lender, receipt)


def _checked(storage: Storage, lender: Job, receipt: ShardReceipt) -> ShardReceipt | str:
    """The receipt if its files match it, otherwise why they are not lent."""
    try:
        check_shard(storage, receipt, with_digest=True)
        check_annotations(storage, receipt)
    except PipelineError as error:
        logger.warning("shard_not_lent", extra={"job": lender.job, "shard": receipt.shard, "reason": str(error)})
        return f"files of {lender.job} do not match their receipts: {hint('doctor', lender.job, store=storage)}"
    return receipt


def _is_repeatable(receipt: ShardReceipt) -> bool:
    """Whether workers would quarantine the same pictures again.

    A picture on which a process died, or which a second attempt gave up, may be read the next time; changed files may
    have been put back; and a library that was missing may be there now.
    """
    return receipt.quarantined == 0 or (receipt.attempt == 1 and _PASSING.isdisjoint(receipt.counters))


def _has_changed(photos: Photos, pairs: list[dict[str, Any]], since: float) -> bool:
    """Whether a picture was written, replaced or moved after `since`; a fingerprint covers only size and ends."""
    try:
        return any(photos.changed_at(pair["image"]) >= since for pair in pairs)
    except OSError:
        return True


def _reuse_shard(job: Job, shard: str, lent: ShardReceipt, storage: Storage) -> None:
    """Link the lender's files under their names in `job`, the receipt last. Others may write the same bytes now."""
    theirs, ours = JobPaths(lent.job), JobPaths(job.job)
    storage.link(theirs.tfrecord(lent.shard), ours.tfrecord(shard))
    storage.link(theirs.shard_annotations(lent.shard), ours.shard_annotations(shard))
    split, index, count = job.place(shard)
    names = {"job": job.job, "incarnation": job.incarnation, "shard": shard, "task_digest": job.task_digest(shard)}
    receipt = lent.model_copy(update={**names, "split": split, "index": index, "count": count})
    storage.write(ours.receipt(shard), receipt.to_json().encode())
