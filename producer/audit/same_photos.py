"""Two jobs and paths of photos -> the paths at which both have the same photo, as far as the store can tell.

Shards do not keep the original photos. All that is known of one is the size that audits note, and the perceptual hash
in the receipt of its shard. The plan's fingerprint covers photo and XML together, so it changes with corrected labels.
"""

from collections.abc import Set
from typing import Final

from producer.audit.photo_sizes import noted_sizes
from shared.audit.same_name import written_hashes
from shared.jobs.job import Job
from shared.picture.alike import NEAR_BITS
from shared.storage import Storage

_HEX: Final = 16


def same_photos(storage: Storage, one: Job, other: Job, files: Set[str]) -> Set[str]:
    """Those of `files` that are the same photo in both jobs: equal in size and nearly equal in perceptual hash.

    Receipts of older versions have no hash; then path and size decide.

    Raises:
        StorageError: A plan or a receipt cannot be read.
        VersionError: A receipt was written by another version.
        ValueError, KeyError, TypeError, AttributeError: A file is damaged.
    """
    if (one.job, one.incarnation) == (other.job, other.incarnation):
        return files  # both audits saw the same shards
    ours, theirs = noted_sizes(one, storage), noted_sizes(other, storage)
    equal = {file for file in files if file in ours and ours[file] == theirs.get(file)}
    if not equal:
        return equal
    hashes, others = written_hashes(storage, one, equal), written_hashes(storage, other, equal)
    return {file for file in equal if _is_alike(hashes.get(file), others.get(file))}


def _is_alike(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return True
    if not one or not other:
        return one == other
    return (int(one, _HEX) ^ int(other, _HEX)).bit_count() <= NEAR_BITS
