"""`DataFolder`: where the photos of a data set lie, a path or a folder in a bucket."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from shared.errors import StorageError
from shared.storage.bucket import advice, require_plain
from shared.storage.files import Stamp
from shared.storage.objects import Fetched, ObjectStorage

# The pauses before a file whose transfer failed is asked for again, and the time after which it is given up: a lease
# must last longer.
_PAUSES_S: Final = (0.2, 1.0, 3.0)
_ENOUGH_S: Final = 15.0


def _at_once(_size_bytes: int) -> None:
    """Admit any size."""


@dataclass(frozen=True, slots=True)
class BucketFolder:
    """A folder in a bucket, by its URL without a final slash; methods named like those of `Path` do the same."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, path: str) -> "BucketFolder":
        return self if path == "." else BucketFolder(f"{self.url}/{path}")

    @property
    def name(self) -> str:
        """The last part of the URL; for a whole bucket, the bucket's name."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "BucketFolder":
        """The folder that contains it; for a whole bucket, the bucket itself."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else BucketFolder(above)

    @property
    def objects(self) -> ObjectStorage:
        """The client that reads the files in this folder, one per process."""
        return _client(self.url, os.getpid())

    def fetch(self, path: str, span: tuple[int, int] | None = None, admit: Callable[[int], None] = _at_once) -> Fetched:
        """A file, or its bytes in `span`, as `ObjectStorage.fetch` returns it; failed transfers are tried again.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: It did not arrive; the client itself retries a server that is away for 20 s.
        """
        began = time.monotonic()
        for pause_s in (*_PAUSES_S, None):
            try:
                return self.objects.fetch(path, span, admit)
            except FileNotFoundError:
                raise
            except OSError as error:
                if pause_s is None or time.monotonic() - began > _ENOUGH_S:
                    raise StorageError(f"cannot read {self}/{path}: {error}; {advice(self.url, str(error))}") from error
                time.sleep(pause_s)
        raise AssertionError("the last pause is none")  # for the type checker

    def resolve(self) -> "BucketFolder":
        """Itself, because a bucket has no links."""
        return self

    def is_dir(self) -> bool:
        """Whether there is an object below it; raises as `files` does."""
        return next(iter(self.files()), None) is not None

    def files(self) -> Iterator[tuple[str, Stamp]]:
        """The key and stamp of each object below it, listed in pages.

        Raises:
            StorageError: The bucket is absent, refuses access or does not answer.
        """
        try:
            yield from self.objects.walk("")
        except OSError as error:
            raise StorageError(f"cannot list {self}: {error}; {advice(self.url, str(error))}") from error

    def names(self) -> list[str]:
        """The names directly in it, sorted."""
        return sorted(self.objects.names(""))

    def inside(self, root: "BucketFolder") -> str:
        """This folder as a path relative to `root`, "." for `root` itself.

        Raises:
            ValueError: It is not below `root`.
        """
        if self == root:
            return "."
        if not self.url.startswith(f"{root.url}/"):
            raise ValueError(f"{self} is not below {root}")
        return self.url.removeprefix(f"{root.url}/")


DataFolder = Path | BucketFolder


def data_folder(text: str) -> DataFolder:
    """The folder that a person or a setting names, a path or the URL of a folder in a bucket; no request is made.

    Raises:
        StorageError: The URL is of an unsupported kind, or may hold a secret.
    """
    if "://" not in text or text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    require_plain(text)
    scheme, _, rest = text.partition("://")
    return BucketFolder(f"{scheme}://{PurePosixPath(rest)}")


@lru_cache(maxsize=16)
def _client(url: str, _process: int) -> ObjectStorage:
    return ObjectStorage(url)
