"""The photos of a job -> `photo_sizes.json`: their upright sizes, which proposals need and shards do not keep.

`photo_heads.json` has hashes of their first bytes, by which another photo of the same size is noticed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from producer.photos import PairFiles, Photos, photos_in
from producer.progress import Progress
from shared.errors import ImageError, PlanError
from shared.jobs.contents import planned_shards
from shared.jobs.fingerprint import fingerprint_pair, hash_parts
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.picture.header import ImageHeader, read_header
from shared.storage import BucketFolder, DataFolder, Storage, data_folder
from shared.storage.ahead import Admit, Ahead

# A JPEG's size may come after a thumbnail and a colour profile; if this many bytes are not enough, all is read.
_HEAD_BYTES: Final = 256 << 10
_TOLD_EVERY: Final = 200

# What is said of a photo of the same size that was replaced since the audit.
OTHER_FILE: Final = "the photo is another file by now than the one that was audited"


def photos_folder(job: Job, data_root: str) -> DataFolder:
    """Where the photos of a job are: where they were at its submit, or below the data root of this service.

    Raises:
        PlanError: They are at neither place.
    """
    root = data_folder(data_root)
    places = [data_folder(job.dataset), root if job.folder == "." else root / job.folder]
    for place in places:
        if place.is_dir():
            return place
    raise PlanError(f"{job.dataset}: the photos of job {job.job!r} are not there any more, and an audit needs them")


def note_photo_sizes(job: Job, folder: DataFolder, storage: Storage, progress: Progress) -> None:
    """Write the sizes of a job's photos, as far as they are not known already.

    A photo that is gone, or was replaced since the job read it, gets no size, and is looked at again each time.
    """
    known = noted_sizes(job, storage)
    pairs = [pair for _, _, of_shard in planned_shards(storage, job) for pair in of_shard if pair["image"] not in known]
    replaced = _replaced(pairs, photos_in(folder), storage.written_at(JobPaths(job.job).job))
    names = [str(pair["image"]) for pair in pairs if pair["image"] not in replaced]
    sizes, heads = dict(known), dict(noted_heads(job, storage))
    for done, (name, found) in enumerate(zip(names, _seen(names, folder, job.spec.max_pixels), strict=True), start=1):
        if found is not None:
            sizes[name], heads[name] = found
        if done % _TOLD_EVERY == 0 or done == len(names):
            progress("photos", done, len(names))
    if not known or len(sizes) > len(known):
        paths = JobPaths(job.job)
        # The sizes are written last, because photos that they name are not looked at again.
        storage.write(paths.photo_heads(job.incarnation), _as_json(heads))
        storage.write(paths.photo_sizes(job.incarnation), _as_json(sizes))


def _replaced(pairs: Sequence[Mapping[str, Any]], photos: Photos, since: float) -> set[str]:
    """The photos written after `since`, the submit (Unix time), that are no longer what it read and shards hold.

    If a photo's file and its XML may both have changed since, it cannot be told which of them did: the photo counts as
    replaced.
    """
    later = [pair for pair in pairs if _is_later(photos, pair["image"], since)]
    files = photos.pairs((pair["image"], pair["annotation"]) for pair in later)
    return {pair["image"] for pair, found in zip(later, files, strict=True) if not _is_of(found, pair["fingerprint"])}


def _is_later(photos: Photos, image: str, since: float) -> bool:
    try:
        return photos.changed_at(image) >= since
    except OSError:  # it is gone, which is noticed when its size is read
        return False


def _is_of(found: PairFiles, fingerprint: str) -> bool:
    if isinstance(found.xml, OSError) or isinstance(found.sample, OSError):
        return False
    return fingerprint_pair(found.xml, found.sample.digest).hex() == fingerprint


def _as_json(noted: Mapping[str, object]) -> bytes:
    return json.dumps(noted, ensure_ascii=False, sort_keys=True).encode()


def noted_sizes(job: Job, storage: Storage) -> Mapping[str, tuple[int, int]]:
    """Upright width and height of a job's photos, by name, as its audits noted them; none without an audit."""
    content = storage.read_or_none(JobPaths(job.job).photo_sizes(job.incarnation))
    return {} if content is None else {name: (width, height) for name, (width, height) in json.loads(content).items()}


def noted_heads(job: Job, storage: Storage) -> Mapping[str, str]:
    """The `head_digest` of a job's photos, by name, as its audits noted them; audits of 0.2.0 noted none."""
    content = storage.read_or_none(JobPaths(job.job).photo_heads(job.incarnation))
    heads: dict[str, str] = {} if content is None else json.loads(content)
    return heads


def head_digest(content: bytes) -> str:
    """A hex hash of a photo's first 256 KiB, to tell it from another photo of the same size."""
    return hash_parts(content[:_HEAD_BYTES]).hex()


def photo_head(folder: DataFolder, name: str) -> str | None:
    """The `head_digest` of one photo, None if it is gone."""
    try:
        return head_digest(_head(folder, name, lambda _: None))
    except OSError:
        return None


def other_size(now: tuple[int, int], audited: tuple[int, int] | None) -> str:
    """The message if a photo had another size when it was audited, so that its boxes were elsewhere; else ""."""
    if audited is None or audited == now:
        return ""
    return f"the photo is {now[0]}x{now[1]} by now, and {audited[0]}x{audited[1]} was audited"


def _seen(names: list[str], folder: DataFolder, max_pixels: int) -> Iterator[tuple[tuple[int, int], str] | None]:
    """The upright size of each photo and its `head_digest`, None if it is gone or unreadable."""

    def seen(name: str, admit: Admit) -> tuple[tuple[int, int], str] | None:
        try:
            head = _head(folder, name, admit)
            header = _header(folder, name, head, max_pixels, admit)
        except (OSError, ImageError):
            return None
        return header.upright_size, head_digest(head)

    with Ahead(names, seen) as found:
        yield from found


def photo_size(folder: DataFolder, name: str, max_pixels: int, admit: Admit = lambda _: None) -> tuple[int, int] | None:
    """Width and height of one upright photo in pixels, None if it is gone or unreadable."""
    header = photo_header(folder, name, max_pixels, admit)
    return None if header is None else header.upright_size


def photo_header(folder: DataFolder, name: str, max_pixels: int, admit: Admit = lambda _: None) -> ImageHeader | None:
    """The header of one photo, with its size and orientation; None if it is gone or unreadable."""
    try:
        return _header(folder, name, _head(folder, name, admit), max_pixels, admit)
    except (OSError, ImageError):
        return None


def _header(folder: DataFolder, name: str, head: bytes, max_pixels: int, admit: Admit) -> ImageHeader:
    header = _header_by_head(head, max_pixels)
    return header or read_header(read_photo(folder, name, admit), max_pixels=max_pixels)


def _header_by_head(head: bytes, max_pixels: int) -> ImageHeader | None:
    """The header; None if bytes after `head` may change it."""
    try:
        header = read_header(head, max_pixels=max_pixels)
    except ImageError:
        return None
    # WebP stores its orientation after the pixels, and PNG may do so.
    is_decided = len(head) < _HEAD_BYTES or header.format not in ("png", "webp") or header.orientation != 1
    return header if is_decided else None


def _head(folder: DataFolder, name: str, admit: Admit) -> bytes:
    if isinstance(folder, BucketFolder):
        return folder.fetch(name, (0, _HEAD_BYTES), admit).content
    with Path(folder, name).open("rb") as file:
        return file.read(_HEAD_BYTES)


def read_photo(folder: DataFolder, name: str, admit: Admit = lambda _: None) -> bytes:
    """The file of a photo.

    Raises:
        OSError: It is gone.
    """
    if isinstance(folder, BucketFolder):
        return folder.fetch(name, None, admit).content
    return Path(folder, name).read_bytes()
