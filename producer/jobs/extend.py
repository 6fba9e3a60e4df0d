"""The plan of an earlier job with the same photos -> how a new job is cut so that most of the shards can be reused.

A shard whose pictures are all still there and unchanged stays as it is. New pictures go to as few other shards as
sensible: first to those that have to be written again anyway, then to the smallest. Hash ranges (`sharding.py`) would
spread 60 new pictures over all shards.
"""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from producer.dataset.lint import LintedFolder
from producer.jobs.reuse import why_not
from shared.errors import PipelineError
from shared.jobs.contents import contents_of, rules_digest
from shared.jobs.identity import find_job, is_name
from shared.jobs.job import SPLITS, Job, Split
from shared.jobs.paths import JobPaths
from shared.jobs.schema import SHARD_FORMAT
from shared.storage import Storage

# New pictures fill a shard up to `MOST_FILLED` times what an even cut would put there, so that few shards are written
# again. No shard may be over `MOST_UNEVEN` times as large as an even cut makes it: the trainer reads shards
# interleaved, and the end of an epoch would come from the largest one alone.
MOST_FILLED: Final = 2
MOST_UNEVEN: Final = 4

# An extended job may have at most this many times the shards of a new cut.
MOST_SHARDS: Final = 2


# There may be hundreds of jobs of one folder: only the plans of this many likeliest lenders are read.
MOST_PLANS_READ: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierShard:
    """The pictures of a shard that are still in its split; `is_intact` if it held no others and none has changed."""

    members: "array[int]"
    is_intact: bool


Earlier = Mapping[Split, Sequence[EarlierShard]]


def earlier_shards(linted: LintedFolder, source_ids: Sequence[int], *, job: str, storage: Storage) -> Earlier:
    """The shards of the job that lends the most pictures; none if no job can lend any.

    Args:
        linted: The pictures of the new job.
        source_ids: The numbers of the pictures.
        job: The name of the new job: an existing job of that name is preferred to others that lend as many.
        storage: The store with the other jobs.
    """
    best: Earlier = {}
    most, rows = 0, dict[str, int]()
    for name, pairs in _likely_lenders(linted, job, storage) if not linted.spec.dry else ():
        if pairs <= most:
            continue
        try:
            lender = find_job(storage, name)
            if lender is None or why_not(linted.spec, linted.labels.names, SHARD_FORMAT, lender) is not None:
                continue
            rows = rows or {image: row for row, (image, _) in enumerate(linted.pairs)}
            found = _shards_of(lender, linted, source_ids, rows, storage)
        except (PipelineError, ValueError, KeyError):
            continue  # a plan that cannot be read lends nothing; `reuse_shards` logs it
        kept = sum(len(shard.members) for shards in found.values() for shard in shards if shard.is_intact)
        if kept > most:
            best, most = found, kept
    return best


def _likely_lenders(linted: LintedFolder, job: str, storage: Storage) -> Sequence[tuple[str, int]]:
    """The jobs that seem to have most of the pictures, with their numbers of pairs: `job` first, then the likeliest."""
    ours, rules = set(linted.fingerprints), rules_digest(linted.spec, linted.labels.names, SHARD_FORMAT)
    likely = []
    for name in filter(is_name, storage.list_names("jobs")):
        try:
            contents = contents_of(storage, name)
        except (PipelineError, ValueError, KeyError):
            continue
        if contents is None or 2 * contents.pairs < len(linted.pairs):
            continue
        shared = sum(int(fingerprint, 16) in ours for fingerprint in contents.sample)
        if shared:
            order = (name != job, contents.rules != rules, -shared * contents.pairs / len(contents.sample), name)
            likely.append((order, (name, contents.pairs)))
    return [lender for _, lender in sorted(likely)[:MOST_PLANS_READ]]


def extend_cut(
    fresh: Sequence["array[int]"], earlier: Sequence[EarlierShard], *, limit: int, least: int
) -> list["array[int]"]:
    """How one split is cut: like the `earlier` shards if that keeps more of them than the `fresh` cut, else afresh.

    Args:
        fresh: The new cut: indices of all pictures of the split, in each shard in the order of their hashes.
        earlier: The shards of the job that is extended.
        limit: The most pictures that a shard may have.
        least: The fewest shards that the split may have.
    """
    order = {index: place for place, index in enumerate(index for shard in fresh for index in shard)}
    kept = [shard for shard in earlier if shard.members]
    intact = {shard.members.tobytes() for shard in kept if shard.is_intact}
    known = {index for shard in kept for index in shard.members}
    added = [index for index in order if index not in known]
    cut = [array("I", shard.members) for shard in kept]
    _deal(added, cut, [shard.is_intact for shard in kept], limit=limit, least=least, total=len(order))
    for shard in cut:
        if shard.tobytes() not in intact:
            shard[:] = array("I", sorted(shard, key=order.__getitem__))
    even = -(-len(order) // max(1, len(cut)))
    is_sound = least <= len(cut) <= MOST_SHARDS * max(len(fresh), least) and all(
        len(shard) <= min(limit, MOST_UNEVEN * even) for shard in cut
    )
    saved = sum(shard.tobytes() in intact for shard in cut) - sum(shard.tobytes() in intact for shard in fresh)
    return cut if is_sound and saved > 0 else list(fresh)


def _deal(
    added: Sequence[int],
    cut: list["array[int]"],
    is_intact: Sequence[bool],
    *,
    limit: int,
    least: int,
    total: int,
) -> None:
    """Append the `added` pictures to few of the shards of `cut`, and to new shards if those are full or too few."""
    room = min(limit, MOST_FILLED * -(-total // max(1, len(cut), least)))
    rest = list(added)
    missing = max(0, least - len(cut))
    if not missing:
        for rank in sorted(range(len(cut)), key=lambda rank: (is_intact[rank], len(cut[rank]))):
            taken = max(0, room - len(cut[rank]))
            cut[rank].extend(rest[:taken])
            del rest[:taken]
    count = min(len(rest), max(missing, -(-len(rest) // room)))
    cut.extend(array("I", rest[rank::count]) for rank in range(count))


def _shards_of(
    lender: Job, linted: LintedFolder, source_ids: Sequence[int], rows: Mapping[str, int], storage: Storage
) -> Earlier:
    found: dict[Split, list[EarlierShard]] = {split: [] for split in SPLITS}
    for line in storage.lines(JobPaths(lender.job).plan(lender.incarnation)):
        task = json.loads(line)
        split: Split = task["split"]
        members, unchanged = array("I"), 0
        for row, is_same in _pictures(task["pairs"], linted, source_ids, rows):
            if linted.splits[row] == split:
                members.append(row)
                unchanged += is_same
        is_intact = unchanged == len(members) == len(task["pairs"])
        found[split].append(EarlierShard(members=members, is_intact=is_intact))
    return found


def _pictures(
    pairs: Sequence[Mapping[str, object]], linted: LintedFolder, source_ids: Sequence[int], rows: Mapping[str, int]
) -> Iterator[tuple[int, bool]]:
    """The pictures of a shard that are still there: the row of each, and whether it is unchanged."""
    for pair in pairs:
        row = rows.get(str(pair["image"]))
        if row is not None:
            ours = (linted.pairs[row][1], source_ids[row], f"{linted.fingerprints[row]:016x}")
            yield row, ours == (pair["annotation"], pair["source_id"], pair["fingerprint"])
