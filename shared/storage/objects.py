"""The store in an object store, through fsspec: a file is one object, written by one PUT."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import fsspec

from shared.storage.folder import FolderMark, Publish, Stamp


class ObjectStorage:
    """The files of an object store below one fsspec URL; raises what fsspec raises, an `OSError` as a rule."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._fs: Any = fsspec.core.url_to_fs(self.root)[0]

    def _url(self, key: str) -> str:
        return f"{self.root}/{key}"

    def make_root(self) -> None:
        """Nothing: an object store has no folders."""

    def make_shared_folder(self, key: str) -> None:
        """Nothing: an object store has no folders."""

    def remove_temporaries(self, folder: str) -> None:
        """Nothing: an object appears whole or not at all."""

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object from a stream."""
        with self._fs.open(self._url(key), "wb") as file:
            file.writelines(chunks)

    @contextmanager
    def staged(self, key: str, content: bytes) -> Iterator[Publish]:
        """Keep `content` in memory; the function given to the block writes it."""
        yield partial(self._fs.pipe_file, self._url(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists. Two writers at once may both succeed: the write is not conditional."""
        if self._fs.exists(self._url(key)):
            return False
        self._fs.pipe_file(self._url(key), content)
        return True

    def link(self, source: str, key: str) -> None:
        """Copy an object on the server."""
        self._fs.cp_file(self._url(source), self._url(key))

    def written_at(self, key: str) -> float:
        """When an object was written, in seconds of Unix time."""
        return float(self._fs.modified(self._url(key)).timestamp())

    def read(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of an object from `start` up to `end`."""
        content: bytes = self._fs.cat_file(self._url(key), start=start, end=end)
        return content

    def open(self, key: str) -> Any:
        """The object as a binary file to read."""
        return self._fs.open(self._url(key), "rb")

    def stamp(self, key: str) -> Stamp:
        """The stamp of an object."""
        return _stamp(self._fs.info(self._url(key)))

    def names(self, folder: str) -> list[str]:
        """The names directly below a prefix."""
        return [_name(path) for path in self._list(folder, detail=False)]

    def stamps(self, folder: str) -> dict[str, Stamp]:
        """The objects directly below a prefix, by name."""
        return {_name(facts["name"]): _stamp(facts) for facts in self._list(folder) if facts["type"] == "file"}

    def _list(self, folder: str, *, detail: bool = True) -> Any:
        self._fs.invalidate_cache()
        return self._fs.ls(self._url(folder), detail=detail)

    def marks(self, folder: str, _inside: Iterable[str]) -> dict[str, FolderMark | None]:
        """The names in a folder: an object store has no folders that would tell of changes."""
        return dict.fromkeys(self.names(folder))

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._fs.rm_file(self._url(key))

    def remove_tree(self, folder: str) -> None:
        """Remove every object below a prefix."""
        self._fs.rm(self._url(folder), recursive=True)


def _name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _stamp(facts: Mapping[str, Any]) -> Stamp:
    """Stores name their version of an object differently, so all that they tell except the name is in the stamp."""
    told = (str(facts[name]) for name in sorted(facts) if name not in ("name", "Key"))
    return Stamp(size_bytes=int(facts["size"]), mark=tuple(told))
