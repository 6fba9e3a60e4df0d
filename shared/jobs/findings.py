"""`Finding`: one line of the lint report, from the producer's lint or from a worker."""

import operator
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from shared.specs.frozen import Frozen

Rank = Literal["info", "mended", "dropped", "quarantined", "error"]


class Finding(Frozen):
    """One line of the lint report: what was found in which file, and what was done.

    `object_index` counts the direct `object` children from 1; None stands for the file as a whole. `kind` is a fixed
    name such as `box_clipped`, and is also the name of its counter. `class_name` is the class of that object, as the
    job names it; it is empty if the finding is not about a single class, and in files written by 0.2.0.
    """

    file: str
    object_index: int | None = None
    rank: Rank
    kind: str
    found: str
    done: str
    # Left out of the JSON if empty, so that digests of the JSON of earlier versions still match.
    class_name: Annotated[str, Field(exclude_if=operator.not_)] = ""


# Added to a finding's `done` if the photo has lost its last object.
EMPTIED: Final = ", the photo stays as a picture of nothing"


def of_emptied_photo(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a photo that lost all its objects; those of rank dropped also say what becomes of it."""
    return [
        finding.model_copy(update={"done": finding.done + EMPTIED}) if finding.rank == "dropped" else finding
        for finding in findings
    ]
