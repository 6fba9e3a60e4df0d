"""A path of a pair -> the bytes of the file, or an error that blames either the pair or the mount.

The only place where workers open files of the data set; those in a bucket come through `fetched_files`.
"""

import errno
import fcntl
import os
import stat
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from shared.annotation.parse import MAX_XML_BYTES
from shared.errors import AnnotationError, ImageError, PairChanged, StorageError

# The limit for pictures is above the largest camera files. Files are read whole, so it bounds a worker's memory.
MOST_BYTES: Final = {AnnotationError: MAX_XML_BYTES, ImageError: 512 * 2**20}

# How many other files in the folder are tried before a refused file alone is blamed: all may have the same mode.
_SIBLINGS_TRIED: Final = 100

# F_GETPATH of macOS writes into a buffer of MAXPATHLEN bytes.
_MOST_PATH_BYTES: Final = 1024

# The flag that opens a folder that may be entered but not listed, if the system has one.
_TO_LOOK_AT: Final = getattr(os, "O_PATH", os.O_RDONLY)

# How many bytes are read at a time from a file that grew after its size was asked for.
_CHUNK_BYTES: Final = 2**20

_OUTSIDE: Final = "leads out of the data root; refused"

# The file existed when the job was submitted.
ABSENT: Final = "no such file any more"
_IS_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
# The system's errors for which the path itself is to blame.
_NO_SUCH_FILE: Final = {
    errno.EISDIR: "a folder",
    errno.ELOOP: "a link to itself",
    errno.ENAMETOOLONG: "a name too long",
    errno.ENXIO: "not a regular file",
}
# The system's errors both for a single file and for a mount that is not ready yet. Any other error is the fault of the
# mount or of us.
_REFUSED: Final = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk cannot read it (input/output error)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where the files of a job lie: `folder`, the data set, is below `data_root`; nothing outside that is read.

    `is_repeated` means that an earlier attempt failed. The first attempt blames the mount for a refused file. By the
    second attempt the mount has had time to settle: if the folder can be listed, the pair is to blame.
    """

    data_root: Path
    folder: Path
    is_repeated: bool = False


def read_file(inputs: Inputs, path: str, error_class: type[AnnotationError | ImageError]) -> bytes:
    """The content of a regular file of the data set; `error_class` says whether it is an XML file or a picture.

    Raises:
        PairChanged: The file no longer exists.
        AnnotationError, ImageError: It is outside the data root, not a regular file, or too large; in a repeated
            attempt also if it is refused and that is this file's own fault.
        StorageError: The folder of the data set or of the file is absent, or the system refused the read.
    """
    absolute = os.path.join(inputs.folder, path)  # noqa: PTH118  # a Path costs 8 µs a file
    try:
        return _read_inside(absolute, path, inputs, error_class)
    except OSError as error:
        # Nothing about files outside may leak except that they are outside.
        if _leads_out(absolute, inputs.data_root):
            raise error_class(f"{path}: {_OUTSIDE}") from error
        if inputs.is_repeated and error.errno in _REFUSED and _is_files_fault(absolute, inputs.folder, error):
            raise error_class(f"{path}: {_REFUSED[error.errno]}") from error
        if error.errno not in (*_IS_ABSENT, *_NO_SUCH_FILE):
            reader = f" (as user {os.geteuid()}, group {os.getegid()})" if isinstance(error, PermissionError) else ""
            raise StorageError(f"cannot read {absolute}{reader}: {error.strerror or error}") from error
        if error.errno in _IS_ABSENT:
            _check_folders(inputs.folder, Path(absolute).parent)
            raise PairChanged(f"{path}: {ABSENT}") from error
        raise error_class(f"{path}: {_NO_SUCH_FILE[error.errno]}") from error


def _check_folders(folder: Path, of_file: Path) -> None:
    """Blame the mount, not the pairs, if the data set's folder or the folder of a missing file does not exist.

    Raises:
        StorageError: One is absent, or the data set's is empty, like a mount point with nothing mounted.
    """
    if not folder.is_dir() or _is_empty(folder):
        raise StorageError(f"{folder}: the folder of the data set is absent or empty; mount it, or set VOC_DATA_ROOT")
    if not of_file.is_dir():
        raise StorageError(f"{of_file}: this folder of the data set is absent; mount it, or submit the set again")


def _is_empty(folder: Path) -> bool:
    """Whether a folder is known to be empty; False if it may not be listed."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _read_inside(absolute: str, path: str, inputs: Inputs, error_class: type[AnnotationError | ImageError]) -> bytes:
    """The bytes of a regular file below the data root; it is the opened file that is checked, not its path."""
    # Checked before opening, because opening a device may already have an effect.
    if not stat.S_ISREG(os.stat(absolute).st_mode):  # noqa: PTH116  # as above
        leads_out = _leads_out(absolute, inputs.data_root)
        raise error_class(f"{path}: {_OUTSIDE if leads_out else _NO_SUCH_FILE[errno.ENXIO]}")
    # O_NONBLOCK: a pipe that has taken the file's place must not block the worker for ever.
    descriptor = os.open(absolute, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise error_class(f"{path}: {_NO_SUCH_FILE[errno.ENXIO]}")
        if not _is_inside(descriptor, absolute, inputs.data_root):
            raise error_class(f"{path}: {_OUTSIDE}")
        if status.st_size > MOST_BYTES[error_class]:
            raise error_class(f"{path}: {status.st_size} bytes, at most {MOST_BYTES[error_class]} are read")
        return _read_all(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, size_bytes: int) -> bytes:
    """The bytes of an open file, which had this size a moment ago."""
    content = os.read(descriptor, size_bytes + 1)
    while more := os.read(descriptor, _CHUNK_BYTES):
        content += more
    return content


def _is_inside(descriptor: int, absolute: str, data_root: Path) -> bool:
    """Whether the open file that was found at the path `absolute` is below the data root.

    Raises:
        OSError: A link or a mount changed during the check.
    """
    place = _place_of(descriptor)
    if place is not None:
        if not place.startswith(_root_place(data_root)):
            _root_place.cache_clear()  # the data root may be a link that leads elsewhere now
        return place.startswith(_root_place(data_root))
    real = os.path.realpath(absolute)  # resolved only once: a second answer might differ
    if not Path(real).is_relative_to(os.path.realpath(data_root)):
        return False
    if not os.path.samestat(os.fstat(descriptor), os.lstat(real)):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return True


def _place_of(descriptor: int) -> str | None:
    """The path of an open file without links, by one system call; None if the system does not tell it."""
    try:
        if sys.platform == "darwin":
            return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_MOST_PATH_BYTES)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # as above
    except OSError:
        return None


@lru_cache(maxsize=1)
def _root_place(data_root: Path) -> str:
    """The prefix of the places of all files below the data root."""
    try:
        descriptor = os.open(data_root, _TO_LOOK_AT)
    except PermissionError:
        place = None
    else:
        place = _place_of(descriptor)
        os.close(descriptor)
    return (place or os.path.realpath(data_root)).rstrip("/") + "/"


def _leads_out(absolute: str, data_root: Path) -> bool:
    """Whether links lead from this path out of the data root; checks each part of the path, 20 µs each."""
    return not Path(os.path.realpath(absolute)).is_relative_to(os.path.realpath(data_root))


def _is_files_fault(path: str, folder: Path, error: OSError) -> bool:
    """Whether only the file at `path` is to blame for being refused, not its folder or this process's user."""
    may_be_of_all = isinstance(error, PermissionError) and _is_its_owners(path, folder)
    return _is_folder_sound(path) and not (may_be_of_all and not _has_readable_sibling(path))


def _has_readable_sibling(path: str) -> bool:
    """Whether this process may read at least one of the first other files in the folder of `path`."""
    with os.scandir(os.path.dirname(path)) as entries:  # noqa: PTH120  # as above
        files = (entry.path for entry in entries if entry.path != path and entry.is_file())
        return any(os.access(file, os.R_OK) for file in islice(files, _SIBLINGS_TRIED))


def _is_its_owners(path: str, folder: Path) -> bool:
    """Whether the owner of the data set, another user than this process, may read the file.

    In Compose the worker's user is not the one who copied the photos, so all of them may be refused.
    """
    try:
        status, owner = os.stat(path), folder.stat().st_uid  # noqa: PTH116  # as above
    except OSError:
        return False
    return status.st_uid == owner != os.geteuid() and bool(status.st_mode & stat.S_IRUSR)


def _is_folder_sound(path: str) -> bool:
    """Whether the folder of the file at `path`, and that of the file it links to, can be listed and entered."""
    try:
        os.stat(path)  # noqa: PTH116  # fails if the folder can be listed but not entered
        for file in {path, os.path.realpath(path)}:
            with os.scandir(os.path.dirname(file)) as entries:  # noqa: PTH120  # as above
                next(entries, None)
    except OSError:
        return False
    return True
