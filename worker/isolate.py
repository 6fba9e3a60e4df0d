"""Pairs prepared in a child process of its own, from a shard's second attempt on: what kills it is only one picture.

The child takes one pair at a time, under limits of memory and of wall time; the picture it dies on is
quarantined, and a new child goes on after it. A `subprocess`, because Celery's pool processes may have no children
of multiprocessing.

Protocol on the child's pipes: in, the job and then pairs, one JSON line each; out, a line when it is ready, then for
each pair one JSON line and the record's bytes after it.
"""

import dataclasses
import json
import logging
import resource
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from shared import faults
from shared.errors import StorageError
from shared.job import Job, PathPair
from worker.image import use_one_thread
from worker.prepare import PreparedExample, Quarantine, prepare_example, quarantine, recipe_of

logger = logging.getLogger(__name__)

Outcome = PreparedExample | Quarantine
_READY = b"ready\n"
_OUTCOMES: dict[str, TypeAdapter[Any]] = {kind.__name__: TypeAdapter(kind) for kind in (PreparedExample, Quarantine)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one isolated child: its address space in MiB, and the wall seconds of one picture."""

    memory_mb: int
    picture_s: float


class Isolated:
    """Prepares pairs in a child; a `Prepare` for `write_shard`."""

    def __init__(self, job: Job, data_root: Path, limits: Limits, fault: str) -> None:
        self._job, self._data_root, self._limits, self._fault = job, data_root, limits, fault
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, pair: PathPair) -> Outcome:
        """The outcome of `pair`; a quarantine where the child did not survive it."""
        child = self._child or self._start()
        try:
            return self._ask(child, pair)
        except _ChildDiedError as death:
            self.stop()
            logger.error("picture_killed_its_process", extra={"picture": pair.image, "reason": str(death)})
            return quarantine(pair, file=pair.image, kind="image_poison", reason=f"decoding it {death}")

    def stop(self) -> None:
        """End the child if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "worker.isolate", str(self._data_root), json.dumps(self._limits.memory_mb)]
        command.append(self._fault)
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603  # our own
        _write_line(self._child.stdin, self._job.to_json())
        assert self._child.stdout is not None  # noqa: S101  # a pipe, for the type checker
        if self._child.stdout.readline() != _READY:
            # No picture is to blame: the attempt fails and counts.
            raise OSError(f"the process that prepares pictures apart {_death(self._child)} in its start")
        return self._child

    def _ask(self, child: "subprocess.Popen[bytes]", pair: PathPair) -> Outcome:
        try:
            _write_line(child.stdin, pair.to_json())
        except BrokenPipeError as error:
            raise _ChildDiedError(_death(child)) from error
        head, record = self._answer(child)
        if head["kind"] == StorageError.__name__:
            raise StorageError(head["value"])  # the store's or the folder's fault, not the picture's
        outcome: Outcome = _OUTCOMES[head["kind"]].validate_python(head["value"])
        return dataclasses.replace(outcome, record=record) if isinstance(outcome, PreparedExample) else outcome

    def _answer(self, child: "subprocess.Popen[bytes]") -> tuple[dict[str, Any], bytes]:
        """The child's answer, or its death: by itself, or by us when it takes too long."""
        assert child.stdout is not None  # noqa: S101  # a pipe, for the type checker
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            if not selector.select(self._limits.picture_s):
                raise _ChildDiedError(f"took more than {self._limits.picture_s:g} s")
        line = child.stdout.readline()
        if not line.endswith(b"\n"):
            raise _ChildDiedError(_death(child))
        head = json.loads(line)
        record = child.stdout.read(head["record_bytes"])
        if len(record) < head["record_bytes"]:
            raise _ChildDiedError(_death(child))
        return head, record


class _ChildDiedError(Exception):
    """The isolated child did not answer; the text says what became of it."""


@contextmanager
def isolated(job: Job, data_root: Path, limits: Limits, fault: str) -> Iterator[Isolated]:
    """An `Isolated` whose child is gone at the end of the block."""
    prepare = Isolated(job, data_root, limits, fault)
    try:
        yield prepare
    finally:
        prepare.stop()


def _death(child: "subprocess.Popen[bytes]") -> str:
    code = child.wait(5)
    return f"ended its process by {signal.Signals(-code).name}" if code < 0 else f"ended its process with code {code}"


def _write_line(pipe: IO[bytes] | None, text: str) -> None:
    assert pipe is not None  # noqa: S101  # a pipe, for the type checker
    pipe.write(text.encode() + b"\n")
    pipe.flush()


def _serve(data_root: Path, memory_mb: int, fault: str) -> None:
    """The child's side: prepare what is asked until the pipe ends."""
    faults.arm(fault)
    faults.reached("isolated:start")
    use_one_thread()
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    job = Job.model_validate_json(sys.stdin.buffer.readline())
    recipe = recipe_of(job, data_root)
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        try:
            outcome = prepare_example(PathPair.model_validate_json(line), recipe=recipe)
        except StorageError as error:
            _answer_line({"kind": StorageError.__name__, "value": str(error), "record_bytes": 0}, b"")
            continue
        record = outcome.record if isinstance(outcome, PreparedExample) else b""
        bare = dataclasses.replace(outcome, record=b"") if isinstance(outcome, PreparedExample) else outcome
        kind = type(outcome).__name__
        value = _OUTCOMES[kind].dump_python(bare, mode="json")
        _answer_line({"kind": kind, "value": value, "record_bytes": len(record)}, record)


def _answer_line(head: dict[str, Any], record: bytes) -> None:
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + record)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
