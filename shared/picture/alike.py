"""Perceptual hashes of 256 bits -> which pictures are nearly the same. Standard library only."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

# Of 256 bits. Resized, recompressed or brighter pictures differ in up to 26 (99 of 100), two frames of one scene in up
# to 31, other pictures of BCCD and raccoon in at least 86 (docs/decisions/0066). PDQ's own limit is 31 too.
NEAR_BITS: Final = 31

# Hashes are compared only where 16 neighbouring bits are equal: all pairs that differ in up to 15 bits meet, and 9 of
# 10 that differ in 31. At 100,000 pictures that is about a second instead of an hour.
BANDS: Final = 16
BAND_BITS: Final = 16
# Of one band's equal bits so many are looked at: a set of one scene must not take the square of its pictures.
MOST_COMPARED: Final = 64


def band_of(picture_hash: int, band: int) -> int:
    """The bits of one band of a hash: pictures that are alike have an equal one nearly always."""
    return picture_hash >> band * BAND_BITS & (1 << BAND_BITS) - 1


def groups_alike(hashes: Sequence[int | None], most: int) -> list[int]:
    """Which pictures belong together: the group of each, named by the place of its first member.

    Args:
        hashes: Of each picture; None where there is none, which is like no other.
        most: Of one group, so that a film of one scene, in which every frame is like the next, becomes several. Equal
            pictures are joined first.
    """
    first = list(range(len(hashes)))
    members = [[place] for place in first]
    for one, other in chain(_equal_pairs(hashes), _near_pairs(hashes)):
        low, high = sorted((first[one], first[other]))
        if low != high and len(members[low]) + len(members[high]) <= most:
            for place in members[high]:
                first[place] = low
            members[low] += members[high]
    return first


def _equal_pairs(hashes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Places of pictures with the hash of an earlier one, after that one's."""
    seen: dict[int, int] = {}
    for place, picture_hash in enumerate(hashes):
        if picture_hash is not None and seen.setdefault(picture_hash, place) != place:
            yield seen[picture_hash], place


def _near_pairs(hashes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Places of pictures that are nearly the same; a pair may come more than once."""
    for band in range(BANDS):
        buckets = defaultdict[int, list[int]](list)
        for place, picture_hash in enumerate(hashes):
            if picture_hash is None:
                continue
            bucket = buckets[band_of(picture_hash, band)]
            for other in bucket:
                if (picture_hash ^ (hashes[other] or 0)).bit_count() <= NEAR_BITS:
                    yield other, place
            if len(bucket) < MOST_COMPARED:
                bucket.append(place)
