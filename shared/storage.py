"""Atomic write, read and list on a folder or an object store (fsspec).

The truth of a job lives here. A file appears whole or not at all: on a folder it is written beside the target,
flushed, fsynced, renamed, and its folder fsynced; on an object store it is one PUT.
"""

import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from shared.errors import StorageError

# Between the target's name and a token of the writer; the reconciler clears such files once nobody can own them.
TEMPORARY_MARK = ".tmp-"


class Storage:
    """The store at one root, a folder path or an fsspec URL. Keys are relative, `/` as separator.

    Raises (every method): `StorageError` with the key and the system's reason, unless its name ends in `_or_none`
    and the file is just absent.
    """

    def __init__(self, root: str) -> None:
        self.is_local = "://" not in root or root.startswith("file://")
        root = root.removeprefix("file://")
        self.root = str(Path(root).expanduser().absolute()) if self.is_local else root.rstrip("/")
        self._fs: Any = None if self.is_local else fsspec.core.url_to_fs(self.root)[0]

    def url(self, key: str) -> str:
        """Where `key` lies, for a person, and for `tf.io.gfile`."""
        return f"{self.root}/{key}"

    def local_path(self, key: str) -> Path:
        """The path of `key` on a local store.

        Raises:
            StorageError: The store is not a local folder.
        """
        if not self.is_local:
            raise StorageError(f"{self.url(key)}: this needs a store in a local folder")
        return Path(self.root, key)

    def make_root(self) -> None:
        """Make the store's folder; only for a person's own command, so that a vanished mount is never papered over."""
        if self.is_local:
            with _Doing(self.root, "make"):
                Path(self.root).mkdir(parents=True, exist_ok=True)

    def write(self, key: str, content: bytes) -> None:
        """Write `key` whole or not at all, replacing what is there."""
        if not self.is_local:
            with _Doing(self.url(key), "write"):
                self._fs.pipe_file(self.url(key), content)
            return
        temporary = self.stage(key, content)
        self.publish(temporary, key)

    def write_lines(self, key: str, lines: Iterable[str]) -> None:
        """Write `key` from a stream of lines, whole or not at all; memory does not grow with their number."""
        if not self.is_local:
            with _Doing(self.url(key), "write"), self._fs.open(self.url(key), "wb") as file:
                file.writelines(line.encode() + b"\n" for line in lines)
            return
        temporary = self._temporary(key)
        with _Doing(self.url(key), "write"), _removed_on_error(temporary), open(temporary, "xb") as file:
            file.writelines(line.encode() + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        self.publish(temporary, key)

    def remove_temporaries(self, folder: str) -> None:
        """Remove the half-written files directly in `folder`, once nobody can be writing them."""
        if not self.is_local or not self.local_path(folder).is_dir():
            return
        with _Doing(self.url(folder), "clear"):
            for name in os.listdir(self.local_path(folder)):
                if TEMPORARY_MARK in name:
                    self.local_path(f"{folder}/{name}").unlink(missing_ok=True)

    def create(self, key: str, content: bytes) -> bool:
        """Write `key` only if it does not exist yet; False if it does. Atomic on a folder, best effort on objects."""
        if not self.is_local:
            if self.exists(key):
                return False
            self.write(key, content)
            return True
        temporary = self.stage(key, content)
        with _Doing(self.url(key), "create"):
            try:
                os.link(temporary, self.local_path(key))
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
            _sync_folder(self.local_path(key).parent)
        return True

    def stage(self, key: str, content: bytes) -> Path:
        """Write `content` beside `key` under a temporary name, flushed to disk; local stores only."""
        temporary = self._temporary(key)
        with _Doing(self.url(key), "write"), _removed_on_error(temporary), open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def _temporary(self, key: str) -> Path:
        """A name beside `key` that nobody else uses; its folder exists."""
        target = self.local_path(key)
        if not Path(self.root).is_dir():
            raise StorageError(f"cannot write {self.url(key)}: the store {self.root} is not there (mounted?)")
        with _Doing(self.url(key), "write"):
            target.parent.mkdir(parents=True, exist_ok=True)
        owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        return target.with_name(f"{target.name}{TEMPORARY_MARK}{owner}")

    def publish(self, temporary: Path, key: str) -> None:
        """Rename a staged file to its final name and make the name durable."""
        target = self.local_path(key)
        with _Doing(self.url(key), "publish"):
            os.replace(temporary, target)
            _sync_folder(target.parent)

    def link(self, source: str, key: str) -> None:
        """Give the file `source` the further name `key`, replacing what is there; where links are not to be had, copy.

        Files are replaced by renaming only, never written into: two names of one file never see each other change.
        """
        if not self.is_local:
            with _Doing(self.url(key), "copy"):
                self._fs.cp_file(self.url(source), self.url(key))
            return
        temporary = self._temporary(key)
        try:
            os.link(self.local_path(source), temporary)
        except OSError:
            self.write(key, self.read(source))
            return
        try:
            self.publish(temporary, key)
        finally:
            # rename(2) leaves both names where they are one file already.
            temporary.unlink(missing_ok=True)

    def written_at(self, key: str) -> float:
        """When `key` was last written, in seconds of Unix time."""
        with _Doing(self.url(key), "stat"):
            if self.is_local:
                return self.local_path(key).stat().st_mtime
            return float(self._fs.modified(self.url(key)).timestamp())

    def read(self, key: str) -> bytes:
        """The whole of `key`."""
        with _Doing(self.url(key), "read"):
            if self.is_local:
                return self.local_path(key).read_bytes()
            content: bytes = self._fs.cat_file(self.url(key))
            return content

    def read_or_none(self, key: str) -> bytes | None:
        """The whole of `key`, or None where there is no such file."""
        try:
            return self.read(key)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def read_range(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes of `key` from byte `start`."""
        with _Doing(self.url(key), "read"):
            if self.is_local:
                with open(self.local_path(key), "rb") as file:
                    file.seek(start)
                    return file.read(size)
            content: bytes = self._fs.cat_file(self.url(key), start=start, end=start + size)
            return content

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of `key`, streamed, without their line ends."""
        with _Doing(self.url(key), "read"), self._open(key) as file:
            for line in file:
                yield line.rstrip(b"\n")

    def _open(self, key: str) -> Any:
        return open(self.local_path(key), "rb") if self.is_local else self._fs.open(self.url(key), "rb")

    def size_or_none(self, key: str) -> int | None:
        """Size of `key` in bytes, or None where there is no such file."""
        with _Doing(self.url(key), "stat"):
            try:
                if self.is_local:
                    return self.local_path(key).stat().st_size
                return int(self._fs.info(self.url(key))["size"])
            except FileNotFoundError:
                return None

    def exists(self, key: str) -> bool:
        """Whether there is a file at `key`."""
        return self.size_or_none(key) is not None

    def list_names(self, folder: str) -> list[str]:
        """Sorted names of what is directly in `folder`, without temporary files; empty where it is absent."""
        with _Doing(self.url(folder), "list"):
            try:
                if self.is_local:
                    names = os.listdir(self.local_path(folder))
                else:
                    self._fs.invalidate_cache()
                    names = [
                        str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._fs.ls(self.url(folder), detail=False)
                    ]
            except FileNotFoundError:
                return []
        return sorted(name for name in names if TEMPORARY_MARK not in name)

    def remove(self, key: str) -> None:
        """Remove the file `key` if it is there."""
        with _Doing(self.url(key), "remove"), suppress(FileNotFoundError):
            if self.is_local:
                self.local_path(key).unlink()
            else:
                self._fs.rm_file(self.url(key))

    def remove_tree(self, folder: str) -> None:
        """Remove `folder` and all in it if it is there."""
        with _Doing(self.url(folder), "remove"), suppress(FileNotFoundError):
            if self.is_local:
                _remove_tree(self.local_path(folder))
            else:
                self._fs.rm(self.url(folder), recursive=True)


class _Doing:
    """Turn what the system raises into a `StorageError` that names the file and what was being done."""

    def __init__(self, url: str, doing: str) -> None:
        self._url, self._doing = url, doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            raise StorageError(f"cannot {self._doing} {self._url}: {error.strerror or error}") from error


@contextmanager
def _removed_on_error(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_tree(folder: Path) -> None:
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            Path(root, name).unlink()
        for name in folders:
            Path(root, name).rmdir()
    folder.rmdir()
