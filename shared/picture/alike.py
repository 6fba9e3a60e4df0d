"""Perceptual hashes of 256 bits -> which pictures are nearly the same. Standard library only."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

# Of 256 bits, 99 of 100 resized, recompressed or brightened pictures differ in at most 26, two frames of one scene in
# at most 31, different pictures of BCCD and raccoon in at least 86 (docs/decisions/0066). PDQ's own limit is 31 too.
NEAR_BITS: Final = 31

# Hashes are compared only if all 16 bits of a band are equal. That finds all pairs that differ in up to 15 bits, and 9
# of 10 that differ in 31. For 100,000 pictures it takes about a second instead of an hour.
BANDS: Final = 16
BAND_BITS: Final = 16
# How many pictures with equal bits in a band are compared: the time for many frames of one scene must not be quadratic.
MOST_COMPARED: Final = 64


def band_of(picture_hash: int, band: int) -> int:
    """The bits of one band of a hash: similar pictures nearly always have an equal band."""
    return picture_hash >> band * BAND_BITS & (1 << BAND_BITS) - 1


def groups_alike(hashes: Sequence[int | None], most: int) -> list[int]:
    """Which pictures belong together: the group of each, named by the place of its first member.

    Args:
        hashes: The hash of each picture, in order; a picture without one (None) is in a group of its own.
        most: The largest size of a group, so that a film in which every frame is like the next becomes several groups.
            Equal pictures are joined first.
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
    """Pairs of places: the first picture with a hash, then a later one with the same hash."""
    seen: dict[int, int] = {}
    for place, picture_hash in enumerate(hashes):
        if picture_hash is not None and seen.setdefault(picture_hash, place) != place:
            yield seen[picture_hash], place


def _near_pairs(hashes: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Pairs of places of pictures that are nearly the same; a pair may come more than once."""
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
