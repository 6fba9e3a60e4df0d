"""`resamples_<split>.json` of a run: the figures of its int8 model on resamples of a split's photos.

Resamples are seeded and drawn by the order of the photos' names. Of the same photos they hold the same ones for every
run, so that the difference of two runs has an interval of its own (a paired bootstrap) without judging them again.
"""

import hashlib
from collections.abc import Iterable
from typing import Literal

from shared.specs.frozen import SCHEMA_VERSION, Frozen, canonical_json

# One for each resample; None where no object was drawn.
Figures = tuple[float | None, ...]


class ResampledSplit(Frozen):
    """A model's figures on resamples of a split's photos, fractions in [0, 1].

    `drawn_from` says which photos these are (`digest_of`), `ap50` has the figures by class.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: str
    form: str
    split: str
    drawn_from: str
    map50: Figures
    map: Figures
    ap50: dict[str, Figures]


def digest_of(files: Iterable[str]) -> str:
    """Hex SHA-256 of the photos' files, in the order of their names."""
    return hashlib.sha256(canonical_json(list(files)).encode()).hexdigest()
