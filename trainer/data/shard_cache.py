"""Shards in a bucket -> files on this machine, which TensorFlow can read: fetched when needed, and kept.

A copy is named by its SHA-256, once its bytes have been checked, so any number of jobs and trainers may share the
folder. If it grows too large, the least recently used copies are removed; the bucket still has the originals.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from shared.errors import PipelineError, ShardError, StorageError
from shared.jobs.manifest import Manifest, ManifestShard
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from trainer.settings import CacheFolder

logger = logging.getLogger(__name__)

# How many shards are fetched in parallel: a server answers each after some ten milliseconds, however many there are.
FETCHES: Final = 8
# How many of the last copies handed out are kept even above the limit: TensorFlow may be about to open them.
_AHEAD: Final = 8 * FETCHES
# Seconds between tries while the bucket does not answer, on top of the client's own retries.
_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_COPY: Final = ".tfrecord"
_IN_USE: Final = ".in-use-"
_PARTIAL: Final = ".partial-"
# A partial copy older than this was left by a process that died.
_DEAD_S: Final = 3600.0


class ShardCache:
    """The shards of one job; call it with the URL of a shard, from any thread."""

    def __init__(self, storage: Storage, manifest: Manifest, folder: CacheFolder) -> None:
        self._storage, self._folder = storage, folder
        root = JobPaths(manifest.job).shards
        shards = [shard for split in manifest.splits.values() for shard in split]
        self._keys = {storage.url(f"{root}/{shard.file}"): (f"{root}/{shard.file}", shard) for shard in shards}
        self._held: set[str] = set()
        self.folder = folder.path
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._in_use = _InUse(self.folder)
        except OSError as error:
            place = f"{self.folder}: no place for copies of shards ({error.strerror})"
            raise StorageError(f"{place}: name another folder by VOC_SHARD_CACHE") from error
        self._failure: PipelineError | None = None

    def __call__(self, url: str) -> str:
        """The path of a copy of a shard whose bytes match the manifest.

        Raises:
            ShardError: The shard is absent or differs from the manifest.
            StorageError: The bucket did not answer for some minutes, or there is no room for the copy.
        """
        key, shard = self._keys[url]
        try:
            return str(self._copy_of(key, shard))
        except PipelineError as error:
            self._failure = error  # TensorFlow turns errors raised in its graphs into text
            raise

    def take_failure(self) -> PipelineError | None:
        """The error that a call has raised since this was last asked, or None."""
        failure, self._failure = self._failure, None
        return failure

    def _copy_of(self, key: str, shard: ManifestShard) -> Path:
        path = self._folder.path / f"{shard.sha256}{_COPY}"
        self._in_use.note(shard.sha256)
        if path.is_file() and (shard.sha256 in self._held or _digest(path) == shard.sha256):
            with suppress(FileNotFoundError):  # another trainer may just have evicted it
                os.utime(path)
                self._held.add(shard.sha256)
                return path
        content = self._fetched(key, shard)
        self._keep(path, content)
        self._held.add(shard.sha256)
        return path

    def _fetched(self, key: str, shard: ManifestShard) -> bytes:
        """The bytes of a shard, fetched once more if they do not match: an answer may have been cut short."""
        content = self._read(key)
        if hashlib.sha256(content).hexdigest() != shard.sha256:
            content = self._read(key)
        found = hashlib.sha256(content).hexdigest()
        if found != shard.sha256:
            raise ShardError(
                f"{self._storage.url(key)}: expected {shard.size_bytes} bytes with SHA-256 {shard.sha256[:12]}…, found "
                f"{len(content)} with {found[:12]}…"
            )
        return content

    def _read(self, key: str) -> bytes:
        for pause_s in _PAUSES_S:
            try:
                content = self._storage.read_or_none(key)
                break
            except StorageError as error:
                logger.warning("shard_not_fetched", extra={"reason": str(error), "again_in_s": pause_s})
                time.sleep(pause_s)
        else:
            content = self._storage.read_or_none(key)
        if content is None:
            raise ShardError(f"{self._storage.url(key)}: no file")
        return content

    def _keep(self, path: Path, content: bytes) -> None:
        with _alone(self.folder):
            self._make_room(len(content))
            _write(path, content)

    def _make_room(self, size: int) -> None:
        """Remove the least recently used copies until `size` more bytes fit the limit and the disk."""
        copies = sorted(_copies(self.folder).items(), key=lambda entry: entry[1].st_mtime)
        kept = sum(stat.st_size for _, stat in copies)
        most = min(self._folder.most_bytes, kept + shutil.disk_usage(self.folder).free)
        for path in self.folder.glob(f"{_PARTIAL}*"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _DEAD_S:
                    path.unlink()
        if kept + size <= most:
            return
        in_use = self._in_use.by_anybody()
        for path, stat in copies:
            if kept + size > most and path.stem not in in_use:
                path.unlink(missing_ok=True)
                self._held.discard(path.stem)
                kept -= stat.st_size


class _InUse:
    """The copies that a cache has handed out last, in a file that is locked as long as the cache exists."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._last: deque[str] = deque(maxlen=_AHEAD)
        self._file = os.open(folder / f"{_IN_USE}{uuid.uuid4().hex}", os.O_CREAT | os.O_RDWR)
        weakref.finalize(self, os.close, self._file)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def note(self, digest: str) -> None:
        """Note that a copy was handed out."""
        with self._lock:
            self._last.append(digest)
            os.pwrite(self._file, "\n".join(self._last).encode(), 0)

    def by_anybody(self) -> set[str]:
        """The copies that any live cache has handed out last; removes the notes of dead ones."""
        found: set[str] = set()
        for path in self._folder.glob(f"{_IN_USE}*"):
            with suppress(FileNotFoundError), open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    found.update(file.read().decode().split("\n"))
                else:
                    path.unlink(missing_ok=True)
        return found


def shard_cache(storage: Storage, manifest: Manifest, folder: CacheFolder) -> ShardCache | None:
    """The cache for the shards of a job; None if the store is a folder, whose files TensorFlow reads itself."""
    return None if storage.is_local else ShardCache(storage, manifest, folder)


def _copies(folder: Path) -> Mapping[Path, os.stat_result]:
    found = {}
    for path in folder.glob(f"*{_COPY}"):
        with suppress(FileNotFoundError):
            found[path] = path.stat()
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let only one of all threads and trainers make room and use it, so that room is not counted twice."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise StorageError(f"{folder}: a copy of a shard cannot be kept: {error.strerror}") from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _digest(path: Path) -> str | None:
    with suppress(FileNotFoundError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return None


def _write(path: Path, content: bytes) -> None:
    """Write a copy whole or not at all.

    Raises:
        StorageError: The disk is full, or not writable.
    """
    partial = path.with_name(f"{_PARTIAL}{uuid.uuid4().hex}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"{path.parent}: a copy of a shard cannot be kept: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink()
