"""The store in a bucket of S3, Google Cloud Storage or Azure: a file is one object, and nobody sees half of one."""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from html import unescape
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError

from shared.storage.bucket import NO_BUCKET, open_bucket
from shared.storage.files import FolderMark, Stamp, T
from shared.storage.object_lock import Found, ObjectLocks

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion

# How many requests one process makes in parallel, apart from those for photos, which have threads of their own. The
# most are made for a shard's two files, each of which may check its job with two more requests.
_AT_ONCE: Final = 8
# Smaller content is one PUT; of larger content memory holds a few parts while it is written.
_PART_BYTES: Final = 8 << 20
# The most objects that one request removes, and about how many one lists.
_PAGE: Final = 1000
# How often a request is tried if its connection is reset: a restarted server resets each open connection.
_TRIES: Final = 3
# The answers to a request for a range of an empty object. Refusals repeat names and accounts, which may hold "416" too.
_NO_SUCH_RANGE: Final = re.compile(r"InvalidRange: |.*\b416 (Requested )?Range Not Satisfiable")
# What a person can do about an error, by its code; requests are signed with the time of this machine.
_REMEDIES: Final = {
    "RequestTimeTooSkewed": "; set this machine's clock",
    "ExpiredToken": "; set new credentials, then do the same again",
}
# What the status of an answer to HEAD means, as such an answer has no text.
_WORDLESS: Final = {
    "400": "the credentials may have expired, or the region is another than the bucket's",
    "401": "these credentials do not allow it, or this machine's clock is wrong",
    "403": "these credentials do not allow it, or this machine's clock is wrong",
}
# The key in an object's metadata that names the write that made it.
_WRITE: Final = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The bytes that one GET brought, and how many the whole object has."""

    content: bytes
    size_bytes: int


class ObjectStorage:
    """The files of a bucket below one URL; raises `OSError`.

    An empty object with the name of a folder, as consoles and some servers make them, does not count as a file in it.

    A process forked from one that has used a bucket cannot use any bucket: the client's threads do not survive the
    fork, and it would hang or crash. Each request there raises an error instead.
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._bucket = open_bucket(root)
        self._locks = ObjectLocks(self)
        # Its threads begin with the first call, so creating it before a fork is safe.
        self._threads = ThreadPoolExecutor(_AT_ONCE, "request")

    def path(self, key: str) -> None:
        """None: an object has no path."""

    def begin(self, call: Callable[[], T]) -> Callable[[], T]:
        """Make the call in a thread; the returned function waits for its result."""
        return self._threads.submit(call).result

    def at_once(self, calls: Iterable[Callable[[], None]]) -> None:
        """Make all calls in parallel; an error is raised only after all have ended, so that none writes later."""
        begun = [self._threads.submit(call) for call in calls]
        wait(begun)
        for done in begun:
            done.result()

    def make_root(self) -> None:
        """Do nothing: a bucket is made by its owner, and has no folders."""

    def make_shared_folder(self, key: str) -> None:
        """Do nothing: a bucket has no folders."""

    def remove_temporaries(self, folder: str) -> None:
        """Do nothing: no object is temporary."""

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object from a stream: one PUT, or a multipart upload that is aborted if `chunks` raises."""
        parts = _parts(chunks)
        first, second = next(parts, b""), next(parts, None)
        content = first if second is None else chain((first, second), parts)
        with _as_os_errors():
            obstore.put(self._bucket, key, content, chunk_size=_PART_BYTES, max_concurrency=2)

    @contextmanager
    def staged(self, key: str, content: bytes) -> Iterator["_StagedObject"]:
        """Keep `content` in memory during the block, which may write it."""
        yield _StagedObject(self, key, content)

    def version(self, key: str) -> "UpdateVersion":
        """The version of an object."""
        with _as_os_errors():
            return _version(obstore.head(self._bucket, key))

    def swap(self, key: str, content: bytes, old: "UpdateVersion | None") -> "UpdateVersion | None":
        """Write an object if its version is `old` (None: if it does not exist).

        Returns:
            Its new version; None if its version is not `old`. A write whose answer was lost is sent again and refused
            because of itself, so each write leaves its own mark in the object's metadata.
        """
        mark = uuid.uuid4().hex
        with _as_os_errors():
            try:
                made = _repeated(
                    partial(
                        obstore.put,
                        self._bucket,
                        key,
                        content,
                        mode="create" if old is None else old,
                        attributes={_WRITE: mark},
                        use_multipart=False,
                    )
                )
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                if _is_bucket_gone(error):
                    raise
                return self._version_by(mark, key)
        return _version(made)

    def _version_by(self, mark: str, key: str) -> "UpdateVersion | None":
        """The version of an object if the write with this mark made it; otherwise None."""
        try:
            found = obstore.get(self._bucket, key, options={"head": True})
        except FileNotFoundError:
            return None
        return _version(found.meta) if found.attributes.get(_WRITE) == mark else None

    def find(self, key: str) -> Found | None:
        """The bytes of an object and their version, or None if it is absent."""
        try:
            with _as_os_errors():
                found = obstore.get(self._bucket, key)
                return Found(content=bytes(found.bytes()), version=_version(found.meta))
        except FileNotFoundError:
            return None

    @contextmanager
    def locked(self, key: str) -> Iterator[Callable[[], bool] | None]:
        """Hold a lock that is an object, rewritten again and again; when that stops it can be taken over."""
        with self._locks.held(key) as is_ours:
            yield is_ours

    def is_locked(self, key: str) -> bool:
        """Whether a process holds a lock, or held it and died less than a moment ago."""
        return self._locks.is_held(key)

    def link(self, source: str, key: str) -> None:
        """Copy an object on the server."""
        with _as_os_errors():
            obstore.copy(self._bucket, source, key)

    def written_at(self, key: str) -> float:
        """When an object was written, by the server's clock."""
        with _as_os_errors():
            return obstore.head(self._bucket, key)["last_modified"].timestamp()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of an object from `start` up to `end`."""
        with _as_os_errors():
            if start == 0 and end is None:
                return bytes(obstore.get(self._bucket, key).bytes())
            size = obstore.head(self._bucket, key)["size"]  # servers refuse an empty range
            end = size if end is None else min(end, size)
            return bytes(obstore.get_range(self._bucket, key, start=start, end=end)) if start < end else b""

    def fetch(
        self, key: str, span: tuple[int, int] | None = None, admit: Callable[[int], None] = lambda _: None
    ) -> Fetched:
        """An object, or as many of its bytes in `span` (start, end) as exist, by one GET.

        `admit` is called with the number of bytes before they are read, and may wait or raise.
        """
        try:
            with _as_os_errors():
                found = obstore.get(self._bucket, key, options={} if span is None else {"range": span})
        except OSError as error:
            if span is not None and _NO_SUCH_RANGE.match(str(error)):
                return Fetched(content=b"", size_bytes=0)
            raise
        start, end = found.range
        admit(end - start)
        with _as_os_errors():
            content = bytes(found.bytes())
        if len(content) != end - start:
            raise OSError(f"the server sent {len(content)} bytes of {end - start}")
        return Fetched(content=content, size_bytes=found.meta["size"])

    def lines(self, key: str) -> Iterator[bytes]:
        """The lines of an object, from one GET."""
        rest = b""
        with _as_os_errors():
            stream = iter(obstore.get(self._bucket, key).stream(min_chunk_size=1 << 20))
        while True:
            with _as_os_errors():
                chunk = next(stream, None)
            if chunk is None:
                break
            *whole, rest = (rest + bytes(chunk)).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest

    def stamp(self, key: str) -> Stamp:
        """The stamp of an object."""
        with _as_os_errors():
            return _stamp(obstore.head(self._bucket, key))

    def names(self, folder: str) -> list[str]:
        """The names directly below a prefix; some servers list a folder for minutes after its last file is gone."""
        with _as_os_errors():
            found = obstore.list_with_delimiter(self._bucket, folder)
        paths = (*found["common_prefixes"], *(meta["path"] for meta in found["objects"]))
        return [_name(path) for path in paths if path != folder]

    def stamps(self, folder: str) -> dict[str, Stamp]:
        """The objects directly below a prefix, by name."""
        with _as_os_errors():
            found = obstore.list_with_delimiter(self._bucket, folder)
        return {_name(meta["path"]): _stamp(meta) for meta in found["objects"] if meta["path"] != folder}

    def walk(self, folder: str) -> Iterator[tuple[str, Stamp]]:
        """The key and stamp of each object below a prefix."""
        for page in self._pages(folder):
            yield from ((meta["path"], _stamp(meta)) for meta in page if meta["path"] != folder)

    def _pages(self, folder: str) -> "Iterator[Sequence[ObjectMeta]]":
        stream = iter(obstore.list(self._bucket, folder, chunk_size=_PAGE))
        while True:
            with _as_os_errors():
                page = next(stream, None)
            if page is None:
                return
            yield page

    def marks(self, _folder: str, names: Iterable[str], _inside: Sequence[str]) -> dict[str, FolderMark | None]:
        """No marks: an object store has no folders that would show changes."""
        return dict.fromkeys(names)

    def remove(self, key: str) -> None:
        """Remove an object; it may be gone already."""
        with _as_os_errors():
            _repeated(partial(obstore.delete, self._bucket, key))

    def remove_tree(self, folder: str) -> None:
        """Remove every object below a prefix, page by page; a process killed in the middle leaves some."""
        for page in self._pages(folder):
            keys = [meta["path"] for meta in page]
            try:
                with _as_os_errors():
                    _repeated(partial(obstore.delete, self._bucket, keys))
            except FileNotFoundError:
                # Azure and Google raise this for an object that is gone already, and may not have removed the others.
                self.at_once(partial(self._remove_if_there, key) for key in keys)

    def _remove_if_there(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self.remove(key)


class _StagedObject:
    """Bytes in memory, and the object that they may become."""

    def __init__(self, objects: ObjectStorage, key: str, content: bytes) -> None:
        self._objects, self._key, self._content = objects, key, content

    def publish(self) -> None:
        """Write the object."""
        self._objects.write(self._key, [self._content])

    def create(self) -> bool:
        """Write the object unless there is one, by a conditional write."""
        return self._objects.swap(self._key, self._content, None) is not None

    def replace(self, seen: Any) -> bool:
        """Replace the version `seen` of the object, by a conditional write."""
        return self._objects.swap(self._key, self._content, seen) is not None


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in parts of `_PART_BYTES` or a little more."""
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= _PART_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _stamp(meta: "ObjectMeta") -> Stamp:
    seconds = int(meta["last_modified"].timestamp())
    return Stamp(size_bytes=meta["size"], mark=(_tag(meta), seconds), written_at=seconds)


def _tag(meta: "ObjectMeta") -> str:
    """An object's ETag without quotes: Azure's listings have no quotes, its answers about one object do."""
    return str(meta["e_tag"]).strip('"')


def _version(told: "ObjectMeta | PutResult") -> "UpdateVersion":
    version: UpdateVersion = {"e_tag": told["e_tag"]}
    return version if told["version"] is None else {**version, "version": told["version"]}


def _repeated(request: Callable[[], T]) -> T:
    """The result of a request, which is made again if its connection is reset.

    The client does so by itself for a GET or a plain PUT, but not for removals and conditional writes. Both may be done
    twice: what is gone stays gone, and by its mark `swap` recognises its own write.
    """
    for _ in range(_TRIES - 1):
        try:
            return request()
        except GenericError as error:
            if "kind: Interrupted" not in str(error):
                raise
    return request()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Turn the client's errors into the `OSError`s that a folder would raise, with a reason of one line."""
    _require_own_threads()
    try:
        yield
    except FileNotFoundError as error:
        if _is_bucket_gone(error):
            raise OSError(_reason(error)) from error
        raise FileNotFoundError("no such object") from error
    except BaseError as error:
        raise OSError(_reason(error)) from error


def _is_bucket_gone(error: Exception) -> bool:
    return any(told in str(error) for told in NO_BUCKET)


@cache
def _first_user() -> int:
    """The process that made the first request; a process forked from it sees the same value."""
    return os.getpid()


def _require_own_threads() -> None:
    if _first_user() != os.getpid():
        raise OSError("this process was forked from one that had used a bucket; only one of the two may")


def _reason(error: Exception) -> str:
    """The server's own words if it gave any, otherwise the client's innermost message."""
    text, _, details = str(error).partition("\n\nDebug source")
    if re.search(r"\bkind: Timeout\b", details):
        return "no whole answer within VOC_REQUEST_TIMEOUT_S"
    if "IncompleteBody" in details:
        return "the answer was cut short"
    told = re.search("<Code>(?P<code>.*?)</Code>.*?<Message>(?P<message>.*?)</Message>", text, re.DOTALL)
    if told is not None:
        message = unescape(told["message"]).partition("\n")[0]  # Azure adds lines about the request
        return f"{told['code']}: {message}{_REMEDIES.get(told['code'], '')}"
    found = " ".join(text.rpartition(" - ")[2].split())[:200].rstrip(": ")
    status = re.search(r"\b40[013]\b", found)
    return f"{found}: {_WORDLESS[status[0]]}" if status is not None else found
