"""`Finding`: one line of the lint report, by the producer's lint or by a worker."""

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
    job names it; empty where the finding is about no single class, and in what 0.2.0 wrote.
    """

    file: str
    object_index: int | None = None
    rank: Rank
    kind: str
    found: str
    done: str
    # Not in the text where it is empty: digests are made of the texts of before.
    class_name: Annotated[str, Field(exclude_if=operator.not_)] = ""


# Ends what was done where it cost a photo its last object.
EMPTIED: Final = ", the photo stays as a picture of nothing"


def of_emptied_photo(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a photo that lost all its objects; those of rank dropped say what becomes of it."""
    return [
        finding.model_copy(update={"done": finding.done + EMPTIED}) if finding.rank == "dropped" else finding
        for finding in findings
    ]
