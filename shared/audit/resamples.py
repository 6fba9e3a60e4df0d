"""`resamples_<split>.json` of a run: the figures of its int8 model on resamples of a split's photos.

Resamples are seeded and drawn in the order of the photos' names, so the same photos give every run the same resamples.
The difference of two runs thus has an interval of its own (a paired bootstrap) without evaluating them again.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal

from shared.specs.frozen import SCHEMA_VERSION, Frozen, canonical_json

# One figure per resample; None where no object was drawn.
Figures = tuple[float | None, ...]


class ResampledSplit(Frozen):
    """A model's figures on resamples of a split's photos, fractions in [0, 1].

    `drawn_from` identifies the photos (`digest_of`); `ap50` has the figures by class.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: str
    form: str
    split: str
    drawn_from: str
    map50: Figures
    map: Figures
    ap50: dict[str, Figures]


def digest_of(scenes: Mapping[str, str]) -> str:
    """Hex SHA-256 of the photos' files in the order of their names, and of their scenes if they have any."""
    files = sorted(scenes)
    drawn: list[str] | list[list[str]] = files
    if any(scenes.values()):
        drawn = [files, [scenes[file] for file in files]]
    return hashlib.sha256(canonical_json(drawn).encode()).hexdigest()
