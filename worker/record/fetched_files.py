"""The files of a shard's pairs: read from a folder as they are asked for, or fetched ahead from a bucket."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from shared.errors import AnnotationError, ImageError, PairChanged, PipelineError, StorageError
from shared.jobs.job import Job, ShardTask
from shared.leasing.guard import Guard
from shared.storage import BucketFolder, DataFolder
from shared.storage.ahead import Admit, Ahead
from worker.record.input_files import ABSENT, MOST_BYTES, Inputs, read_file
from worker.record.prepare import Read

ErrorClass = type[AnnotationError | ImageError]


class _Arrived(NamedTuple):
    """A file's content, or why it did not arrive."""

    path: str
    content: bytes | PipelineError


@contextmanager
def files_of(task: ShardTask, job: Job, data_root: DataFolder, guard: Guard) -> Iterator[Read]:
    """A `Read` for the files of the task's pairs, which must be asked for in order."""
    if not isinstance(data_root, BucketFolder):
        yield partial(read_file, Inputs(data_root=data_root, folder=data_root / job.folder))
        return
    with Ahead(_files_in(task), partial(_fetch, data_root / job.folder)) as ahead:
        # Waiting for a server that is away must not count as hanging, and must notice a request to stop.
        yield partial(_read, ahead, guard.advance)


def _files_in(task: ShardTask) -> Iterator[tuple[str, ErrorClass]]:
    """The files of a task's pairs in the order in which they are read."""
    for pair in task.pairs:
        if pair.annotation is not None:
            yield pair.annotation, AnnotationError
        yield pair.image, ImageError


def _read(ahead: Ahead[tuple[str, ErrorClass], _Arrived], look: Callable[[], None], path: str, _: ErrorClass) -> bytes:
    """The next file with this path; skips the picture of an XML that was rejected. Raises as `read_file` does."""
    while (arrived := ahead.take(look)).path != path:
        pass
    if isinstance(arrived.content, PipelineError):
        raise arrived.content
    return arrived.content


def _fetch(folder: BucketFolder, file: tuple[str, ErrorClass], admit: Admit) -> _Arrived:
    path, error_class = file
    try:
        return _Arrived(path, _content(folder, path, error_class, admit))
    except PipelineError as error:
        return _Arrived(path, error)


def _content(folder: BucketFolder, path: str, error_class: ErrorClass, admit: Admit) -> bytes:
    """The whole content of an object.

    Raises:
        PairChanged: The object no longer exists.
        AnnotationError, ImageError: It is too large.
        StorageError: It does not arrive, or the whole folder is empty, which is not the fault of this file.
    """

    def admit_file(size_bytes: int) -> None:
        if size_bytes > MOST_BYTES[error_class]:
            raise error_class(f"{path}: {size_bytes} bytes, at most {MOST_BYTES[error_class]} are read")
        admit(size_bytes)

    try:
        return folder.fetch(path, None, admit_file).content
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise StorageError(f"{folder}: the folder of the data set is absent") from error
        raise PairChanged(f"{path}: {ABSENT}") from error
