"""Named points at which a test can kill this process: `VOC_FAULT=shard:after_rename` or `…@/path/to/marker`.

With a marker only one process dies: the one that creates the marker file. `VOC_FAULT=freeze/shard:before_rename` stops
the process there (SIGSTOP) until somebody continues it. `VOC_FAULT=poison:<how>:<part of a picture's path>` harms every
process that opens that picture.
"""

import os
import signal
from typing import Final

_armed: dict[str, tuple[signal.Signals, str | None]] = {}
_poisons: dict[str, str] = {}

POISONS: Final = frozenset({"segv", "memory", "loop", "parent"})

POINTS: Final = frozenset(
    {
        "shard:before_rename",
        "shard:after_rename",
        "shard:after_receipt",
        "shard:after_ledger",
        "isolated:start",
        "job:before_manifest",
        "job:after_manifest",
        "submit:after_plan",
        "submit:after_job",
        "submit:after_reuse_of_one",
        "rm:after_note",
        "rm:after_run",
        "run:after_checkpoint",
        "run:before_commit",
    }
)


def arm(faults: str) -> None:
    """Arm the points named in `faults` (comma separated, `[freeze/]point[@marker]`); empty arms nothing.

    Raises:
        ValueError: A point has no such name.
    """
    for fault in filter(None, faults.split(",")):
        if fault.startswith("poison:"):
            _, how, part = fault.split(":", 2)
            if how not in POISONS:
                raise ValueError(f"no poison {how!r}; there are {sorted(POISONS)}")
            _poisons[part] = how
            continue
        place, _, marker = fault.partition("@")
        name = place.removeprefix("freeze/")
        if name not in POINTS:
            raise ValueError(f"no fault point {name!r}; there are {sorted(POINTS)}")
        _armed[name] = (signal.SIGKILL if name == place else signal.SIGSTOP, marker or None)


def reached(point: str) -> None:
    """Kill or freeze this process if `point` is armed."""
    if point not in _armed:
        return
    sent, marker = _armed[point]
    if marker is not None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), sent)


def open_picture(path: str) -> None:
    """Cause what the picture at `path` is armed with: a crash, no memory, an endless loop, or the parent's death."""
    for part, how in _poisons.items():
        if part not in path:
            continue
        if how == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "memory":
            bytearray(2**46)
        elif how == "parent":
            os.kill(os.getppid(), signal.SIGKILL)
        while how == "loop":
            pass
