"""Preparing pairs in a child process, from a shard's second attempt on, so that a bad picture kills only the child.

The child takes one pair at a time, under limits of memory and time. The picture that it dies on is quarantined, and a
new child goes on with the next one. It is a `subprocess`, because Celery's pool processes may not have multiprocessing
children.

Protocol on the child's pipes, one line each: in go the job and then the pairs, with their files if the child cannot
read them itself; out come a line when it is ready and then the answer to each pair. All but that line are JSON.
"""

import logging
import resource
import selectors
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from pydantic import ConfigDict, TypeAdapter

from shared import faults
from shared.errors import AnnotationError, ImageError, InputError, StorageError
from shared.jobs.job import Job, PathPair
from shared.text import printable
from worker.picture.encode import use_one_thread
from worker.record.prepare import Outcome, Read, prepare_example, quarantine, recipe_by, recipe_of

logger = logging.getLogger(__name__)

_READY: Final = b"ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """The `StorageError` that the child met, which is the fault of the store or the folder, not of the picture."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """Why a file has no bytes, which will not change."""

    reason: str


# A pair's files by path, if they were fetched for the child.
_Files = dict[str, bytes | _Missing]

_BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_ASKED: Final[TypeAdapter[tuple[PathPair, _Files]]] = TypeAdapter(tuple[PathPair, _Files], config=_BASE64)
_ANSWER: Final[TypeAdapter[Outcome | _Refused]] = TypeAdapter(Outcome | _Refused, config=_BASE64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one child: its address space in MiB, and the seconds that one picture may take."""

    memory_mb: int
    picture_s: float


class Isolated:
    """Prepares pairs in a child, which is ended with the `with` block; a `Prepare` for `write_shard`.

    The child reads below `data_root`, or is given what `read` fetches here: waiting for a server must not count against
    the time of a picture.
    """

    def __init__(self, job: Job, data_root: Path | None, limits: Limits, fault: str, read: Read | None = None) -> None:
        self._job, self._limits, self._read = job, limits, read
        self._command = [sys.executable, "-m", "worker.isolate", str(data_root or ""), str(limits.memory_mb), fault]
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def __call__(self, pair: PathPair) -> Outcome:
        """The outcome of `pair`; a quarantine if the child did not survive it."""
        asked = _ASKED.dump_json((pair, self._files(pair)))
        if self._child is not None and self._child.poll() is not None:
            self._stop()  # it died while it had no picture (out of memory, say), so none is to blame
        child = self._child or self._start()
        try:
            answer = _ANSWER.validate_json(self._ask(child, asked))
        except _ChildDiedError as death:
            self._stop()
            logger.error("picture_killed_its_process", extra={"picture": pair.image, "reason": str(death)})
            return quarantine(pair, file=pair.image, kind="image_poison", reason=f"decoding it {death}")
        if isinstance(answer, _Refused):
            raise StorageError(answer.reason)
        return answer

    def _files(self, pair: PathPair) -> _Files:
        """The files of a pair that are fetched here: all that the child will ask for, or none without `read`.

        Raises:
            StorageError: A file does not arrive.
        """
        files: _Files = {}
        for path, kind in ((pair.annotation, AnnotationError), (pair.image, ImageError)):
            if path is not None and self._read is not None:
                try:
                    files[path] = self._read(path, kind)
                except InputError as error:
                    files[path] = _Missing(reason=str(error))
                    break  # the child will not ask for the next file
        return files

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _start(self) -> "subprocess.Popen[bytes]":
        self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        _write_line(_pipe(self._child.stdin), self._job.to_json().encode())
        if _pipe(self._child.stdout).readline().rstrip() != _READY:
            # No picture is to blame, so the attempt fails and counts.
            raise OSError(f"the process that prepares pictures apart {_death(self._child)} in its start")
        return self._child

    def _ask(self, child: "subprocess.Popen[bytes]", asked: bytes) -> bytes:
        """The child's answer.

        Raises:
            _ChildDiedError: It died by itself, or takes too long and must be killed.
        """
        try:
            _write_line(_pipe(child.stdin), asked)
        except BrokenPipeError as error:
            raise _ChildDiedError(_death(child)) from error
        with selectors.DefaultSelector() as selector:
            selector.register(_pipe(child.stdout), selectors.EVENT_READ)
            if not selector.select(self._limits.picture_s):
                raise _ChildDiedError(f"took more than {self._limits.picture_s:g} s")
        line = _pipe(child.stdout).readline()
        if not line.endswith(b"\n"):
            raise _ChildDiedError(_death(child))
        return line


class _ChildDiedError(Exception):
    """The child did not answer; the text says what became of it."""


def _death(child: "subprocess.Popen[bytes]") -> str:
    code = child.wait(5)
    return f"ended its process by {signal.Signals(-code).name}" if code < 0 else f"ended its process with code {code}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101  # for the type checker: the child has both pipes
    return pipe


def _write_line(pipe: IO[bytes], line: bytes) -> None:
    pipe.write(line + b"\n")
    pipe.flush()


def _serve(data_root: str, memory_mb: int, fault: str) -> None:
    """The child's side: prepare the pairs that come in until the pipe ends."""
    faults.arm(fault)
    faults.reached("isolated:start")
    use_one_thread()
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    job = Job.model_validate_json(sys.stdin.buffer.readline())
    _write_line(sys.stdout.buffer, _READY)
    for line in sys.stdin.buffer:
        answer: Outcome | _Refused
        try:
            pair, files = _ASKED.validate_json(line)
            recipe = recipe_of(job, Path(data_root), is_repeated=True) if data_root else recipe_by(job, _given(files))
            answer = prepare_example(pair, recipe=recipe)
        except StorageError as error:
            answer = _Refused(reason=printable(str(error)))
        _write_line(sys.stdout.buffer, _ANSWER.dump_json(answer))


def _given(files: _Files) -> Read:
    """A `Read` of the files that came with a pair."""

    def read(path: str, error_class: type[AnnotationError | ImageError]) -> bytes:
        content = files[path]
        if isinstance(content, _Missing):
            raise error_class(content.reason)
        return content

    return read


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
