"""Named points at which a test can kill this process: `VOC_FAULT=shard:after_rename` or `…@/path/of/marker`.

With a marker the fault fires once in all processes together: the one that creates the marker file dies.
"""

import os
import signal
from typing import Final

_armed: dict[str, str | None] = {}

POINTS: Final = frozenset(
    {
        "shard:before_rename",
        "shard:after_rename",
        "shard:after_receipt",
        "shard:after_ledger",
        "job:after_manifest",
        "submit:after_plan",
        "submit:after_job",
        "run:after_checkpoint",
        "run:before_commit",
    }
)


def arm(faults: str) -> None:
    """Arm the points named in `faults` (comma separated, each `point` or `point@marker`); empty arms nothing.

    Raises:
        ValueError: A point has no such name.
    """
    for fault in filter(None, faults.split(",")):
        name, _, marker = fault.partition("@")
        if name not in POINTS:
            raise ValueError(f"no fault point {name!r}; there are {sorted(POINTS)}")
        _armed[name] = marker or None


def reached(point: str) -> None:
    """Die here by SIGKILL if `point` is armed."""
    if point not in _armed:
        return
    marker = _armed[point]
    if marker is not None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
