"""The files of a shard's pairs, from a folder as they are asked for, from a bucket fetched ahead of the decoder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from shared.errors import AnnotationError, ImageError, PipelineError, StorageError
from shared.jobs.job import Job, PathPair, ShardTask
from shared.leasing.guard import Guard
from shared.storage import BucketFolder, DataFolder
from shared.storage.ahead import Admit, Ahead
from worker.record.input_files import MOST_BYTES, Inputs, read_file
from worker.record.prepare import Read

# Of a pair, by path: the bytes of each file, or why there are none.
_Files = dict[str, bytes | PipelineError]

_ABSENT: Final = "no such file"


@contextmanager
def files_of(task: ShardTask, job: Job, data_root: DataFolder, guard: Guard) -> Iterator[Read]:
    """What reads the files of the task's pairs, one pair after the other."""
    if not isinstance(data_root, BucketFolder):
        yield partial(read_file, Inputs(data_root=data_root, folder=data_root / job.folder))
        return
    folder = data_root / job.folder
    with Ahead(task.pairs, partial(_fetch_pair, folder)) as ahead:
        # A server that is away is no standstill of this process, and who waits for it can be asked to stop.
        yield _Fetched(ahead, look=guard.advance).read


class _Fetched:
    """The files of the pair that is being prepared."""

    def __init__(self, ahead: Ahead[PathPair, _Files], look: Callable[[], None]) -> None:
        self._ahead, self._look = ahead, look
        self._files: _Files = {}

    def read(self, path: str, _error_class: type[AnnotationError | ImageError]) -> bytes:
        """A file of this pair, or of the next one that has it; raises as `read_file`."""
        while path not in self._files:
            self._files = self._ahead.take(self._look)
        content = self._files[path]
        if isinstance(content, PipelineError):
            raise content
        return content


def _fetch_pair(folder: BucketFolder, pair: PathPair, admit: Admit) -> _Files:
    """Both files of a pair. Where the XML is at fault the picture is not needed."""
    files: _Files = {}
    try:
        if pair.annotation is not None:
            files[pair.annotation] = _fetch(folder, pair.annotation, AnnotationError, admit)
        files[pair.image] = _fetch(folder, pair.image, ImageError, admit)
    except PipelineError as error:
        files[pair.image if pair.annotation in files or pair.annotation is None else pair.annotation] = error
    return files


def _fetch(folder: BucketFolder, path: str, error_class: type[AnnotationError | ImageError], admit: Admit) -> bytes:
    """The whole of an object.

    Raises:
        AnnotationError, ImageError: There is none, or it is too large.
        StorageError: It does not arrive, or the folder is empty: that is no fault of this file.
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
        raise error_class(f"{path}: {_ABSENT}") from error
