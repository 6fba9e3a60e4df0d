"""What a model is worth on resamples of a split's photos -> `resamples_<split>.json` of its run."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shared.audit.resamples import Figures, ResampledSplit, digest_of
from shared.jobs.frozen import canonical_json
from trainer.evaluation.measure import Measured

# A thousandth of a point, below what any figure shows.
_DIGITS: Final = 5


def resamples_file(truth: Mapping[str, Any], measured: Measured, **facts: Any) -> bytes:
    """The content of a `resamples_<split>.json`.

    Args:
        truth: COCO form, of all photos that were measured.
        measured: The model on them.
        facts: `run`, `form`, `split`.
    """
    files = {image["id"]: image["file_name"] for image in truth["images"]}
    map50, mean, *ap50 = (_figures(row.tolist()) for row in np.round(measured.samples, _DIGITS))
    kept = ResampledSplit(
        drawn_from=digest_of(files[image_id] for image_id in sorted(files)),
        map50=map50,
        map=mean,
        ap50=dict(zip(measured.figures["per_class"], ap50, strict=True)),
        **facts,
    )
    return canonical_json(kept.model_dump(mode="json")).encode()


def _figures(row: list[float]) -> Figures:
    return tuple(None if np.isnan(value) else value for value in row)
