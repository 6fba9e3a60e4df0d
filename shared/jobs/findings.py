"""`Finding`: one line of the lint report, by the producer's lint or by a worker."""

from typing import Literal

from shared.jobs.frozen import Frozen

Rank = Literal["info", "mended", "dropped", "quarantined", "error"]


class Finding(Frozen):
    """One line of the lint report: what was found in which file, and what was done.

    `object_index` counts the direct `object` children from 1; None stands for the file as a whole. `kind` is a fixed
    name such as `box_clipped`, and is also the name of its counter.
    """

    file: str
    object_index: int | None = None
    rank: Rank
    kind: str
    found: str
    done: str
