"""`Storage`: atomic write, read and list in the one place that holds the truth about every job.

A file appears whole or not at all. `FolderStorage` or `ObjectStorage` does the work, each implementing `Files`; this
class turns their errors into messages for people.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from shared.errors import LeaseLost, StorageError
from shared.storage.files import Files, FolderMark, Staged, Stamp, T
from shared.storage.folder import FolderStorage
from shared.storage.objects import ObjectStorage

# Nothing is there, or a file is where a folder should be.
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)
# Other errors that mean that there is no file with this name: it is a folder, or a circular link.
_NO_FILE: Final = frozenset({errno.EISDIR, errno.ELOOP})
# What to do if a store cannot be written.
_REMEDIES: Final = {
    errno.EROFS: "; make it writable, or name another store",
    errno.ENOSPC: "; make room, then do the same again",
    errno.EACCES: "; give this user the right to write there, or name another store",
}


class Publish(Protocol):
    """Gives staged files their names; see `Storage.staged`."""

    def __call__(self, require_ours: Callable[[], None] | None = None, /) -> None:
        """Give the files their names."""


class Storage:
    """The store at one root, a folder path or the URL of a bucket; keys are relative, with `/` as separator.

    Raises (every method): `StorageError` with the key and the system's reason, unless the name of the method ends in
    `_or_none` and the file is just absent.
    """

    def __init__(self, root: str) -> None:
        is_folder = "://" not in root or root.startswith("file://")
        self._files: Files = FolderStorage(root) if is_folder else ObjectStorage(root)
        self.root = self._files.root
        self.is_local = self._files.path("") is not None

    def url(self, key: str) -> str:
        """Where `key` lies, for a person and, in a folder, for `tf.io.gfile`."""
        return f"{self.root}/{key}"

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """A function that returns the result of `call`, which reads or writes here, or raises its error.

        In a bucket the call is made at once in a thread, so that the caller's next request does not wait for it; in a
        folder it is made when the result is asked for.
        """
        return self._files.begin(call)

    @contextmanager
    def _doing(self, what: str, key: str) -> Iterator[None]:
        """Turn the system's errors into a `StorageError` that names the file and what was being done."""
        try:
            yield
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "") if what == "write" else ""
            raise StorageError(f"cannot {what} {self.url(key)}: {error.strerror or error}{remedy}") from error

    def local_path(self, key: str) -> Path:
        """The path of `key` in a local store.

        Raises:
            StorageError: The store is not a local folder.
        """
        path = self._files.path(key)
        if path is None:
            raise StorageError(f"{self.url(key)}: this needs a store in a local folder")
        return path

    def make_root(self) -> None:
        """Make the store's folder; only commands that a person runs may do so, lest it hide a vanished mount."""
        with self._doing("make the store", ""):
            self._files.make_root()

    def make_shared_folder(self, key: str) -> None:
        """Make the folder `key`; its group may write into it if the first folder of `key` has the setgid bit.

        In Compose the worker and the submitter are different users of the same group, and the worker may write into
        this folder and no other: `prepare` gives `jobs` the bit, and files made in here belong to the group too.
        Elsewhere the group gets no right: a person's group may be everybody on that machine. An object store has no
        folders.
        """
        with self._doing("share", key):
            self._files.make_shared_folder(key)

    def write(self, key: str, content: bytes) -> None:
        """Write `key` whole or not at all, replacing any file that is there."""
        with self.staged({key: content}) as publish:
            publish()

    def write_lines(self, key: str, lines: Iterable[str]) -> None:
        """Write `key` from a stream of lines, whole or not at all; memory does not grow with their number."""
        with self._doing("write", key):
            self._files.write(key, (line.encode() + b"\n" for line in lines))

    @contextmanager
    def staged(self, contents: Mapping[str, bytes]) -> Iterator[Publish]:
        """Write several files now and give them their names later; in a folder they appear one right after another.

        The block gets a function that gives the names. Files that the block does not publish are removed at its end.

        The function's optional argument raises unless the caller may still replace what others have written. It is
        called if a name is taken, and only the version seen there before that call is replaced. So a writer that stood
        still, and whose work meanwhile went to another one, replaces nothing of the other's (a `LeaseLost`).
        """
        staged: dict[str, Staged] = {}

        def publish(require_ours: Callable[[], None] | None = None) -> None:
            self._files.at_once(partial(self._publish, key, each, require_ours) for key, each in staged.items())

        with ExitStack() as stack:
            for key, content in contents.items():
                with self._doing("write", key):
                    staged[key] = stack.enter_context(self._files.staged(key, content))
            yield publish

    def _publish(self, key: str, staged: Staged, require_ours: Callable[[], None] | None) -> None:
        with self._doing("write", key):
            if require_ours is None:
                staged.publish()
            elif not staged.create():
                seen = self._files.version(key)
                require_ours()
                if not staged.replace(seen):
                    raise LeaseLost(f"{self.url(key)}: another attempt wrote it just now")

    def create(self, key: str, content: bytes) -> bool:
        """Write `key` unless it exists; False if it does. Of several simultaneous calls exactly one returns True."""
        with self._doing("create", key), self._files.staged(key, content) as staged:
            return staged.create()

    def remove_temporaries(self, folder: str) -> None:
        """Remove half-written and half-removed files directly in `folder`; call it when nobody can be writing them."""
        with self._doing("clear", folder):
            self._files.remove_temporaries(folder)

    def link(self, source: str, key: str) -> None:
        """Give the file `source` the further name `key`, replacing what is there; copy it if links are impossible.

        Files are replaced by renaming and never written into, so two names of one file never see each other change.
        """
        with self._doing(f"copy {source} to", key):
            self._files.link(source, key)

    @contextmanager
    def locked(self, key: str) -> Iterator[Callable[[], bool] | None]:
        """Hold the lock `key`, in an existing folder, during the block, which gets None if another process holds it.

        Otherwise the block gets a function that tells whether the lock is still held. It is lost only in a bucket, if
        this process stood still for so long that another took it for dead. In a folder a lock ends with its process.
        """
        with ExitStack() as stack:
            with self._doing("lock", key):
                is_ours = stack.enter_context(self._files.locked(key))
            yield is_ours

    def is_locked(self, key: str) -> bool:
        """Whether a process holds the lock `key`; in a bucket also True if it died less than half a minute ago."""
        with self._doing("look at", key):
            return self._files.is_locked(key)

    def written_at(self, key: str) -> float:
        """When `key` was last written, in seconds of Unix time."""
        with self._doing("stat", key):
            return self._files.written_at(key)

    def read(self, key: str) -> bytes:
        """The whole of `key`."""
        with self._doing("read", key):
            return self._files.read(key)

    def read_or_none(self, key: str) -> bytes | None:
        """The whole of `key`, or None if there is no such file."""
        with self._doing("read", key), _absent_is_none():
            return self._files.read(key)
        return None

    def read_range(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes of `key` from byte `start`."""
        with self._doing("read", key):
            return self._files.read(key, start, start + size)

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of `key`, streamed, without their line ends."""
        with self._doing("read", key):
            for line in self._files.lines(key):
                yield line.rstrip(b"\n")

    def stamp_or_none(self, key: str) -> Stamp | None:
        """The stamp of the file `key`, or None if there is no such file."""
        with self._doing("stat", key), _absent_is_none():
            return self._files.stamp(key)
        return None

    def size_or_none(self, key: str) -> int | None:
        """The size of `key` in bytes, or None if there is no such file."""
        stamp = self.stamp_or_none(key)
        return None if stamp is None else stamp.size_bytes

    def exists(self, key: str) -> bool:
        """Whether there is a file at `key`."""
        return self.stamp_or_none(key) is not None

    def list_names(self, folder: str) -> list[str]:
        """Sorted names of everything directly in `folder`, without temporary files; empty if it is absent.

        The servers of some buckets list a folder for minutes after its last file is gone.
        """
        with self._doing("list", folder), suppress(*_ABSENT):
            return sorted(self._files.names(folder))
        return []

    def list_stamps(self, folder: str) -> dict[str, Stamp]:
        """The files directly in `folder` by name, sorted, without temporary ones; empty if it is absent."""
        with self._doing("list", folder), suppress(*_ABSENT):
            return dict(sorted(self._files.stamps(folder).items()))
        return {}

    def marks_of(self, folder: str, names: Iterable[str], *inside: str) -> dict[str, FolderMark | None]:
        """The marks of the folders `names` in `folder`; costs one stat for each of them and of those `inside`.

        A mark changes when a file is written into or removed from the folder or one of those `inside` it. It is None
        if that cannot be known.
        """
        with self._doing("list", folder):
            return self._files.marks(folder, names, inside)

    def walk(self, folder: str) -> dict[str, Stamp]:
        """The files in `folder` and below by key, temporary ones too; empty if it is absent."""
        with self._doing("list", folder):
            return dict(self._files.walk(folder))

    def has_files(self, folder: str) -> bool:
        """Whether there is a file in `folder` or below."""
        with self._doing("list", folder):
            return next(iter(self._files.walk(folder)), None) is not None

    def remove(self, key: str) -> None:
        """Remove the file `key` if it is there."""
        with self._doing("remove", key), suppress(FileNotFoundError):
            self._files.remove(key)

    def remove_tree(self, folder: str) -> None:
        """Remove `folder` and everything in it if it is there.

        A local folder vanishes at once, by a rename; a process killed in the middle leaves a temporary folder beside it
        for `remove_temporaries`. In a bucket it leaves some of the files.
        """
        with self._doing("remove", folder), suppress(*_ABSENT):
            self._files.remove_tree(folder)


@contextmanager
def _absent_is_none() -> Iterator[None]:
    """Leave the block silently if the system says that there is no file with this name."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, _ABSENT) and error.errno not in _NO_FILE:
            raise
