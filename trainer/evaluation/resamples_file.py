"""What a model saw in a split's photos -> `resamples_<split>.json` of its run: its figures on resamples of the photos.

They are drawn in the order of the photos' names, as by `compare`, so that its intervals and the page's are the same.
"""

from typing import Final

import numpy as np

from shared.audit.resamples import Figures, ResampledSplit, digest_of
from shared.audit.seen import SeenSplit
from shared.specs.frozen import canonical_json
from trainer.evaluation.bootstrap import LEAST_PICTURES, resampled
from trainer.evaluation.coco_map import judge
from trainer.evaluation.detections_file import choose, judged_order

# A thousandth of a point, below what any figure shows.
_DIGITS: Final = 5


def resamples_file(split: SeenSplit) -> bytes:
    """The content of a `resamples_<split>.json`.

    Raises:
        ExportError: A detection or annotation is damaged.
    """
    photos = judged_order(split)
    chosen = choose(split, photos, split.labels)
    _, matches = judge(chosen.truth, chosen.seen)
    scenes, samples = split.scenes(), np.zeros((2 + len(matches), 0))
    if len(photos) >= LEAST_PICTURES:
        samples = resampled(matches, names=photos, scenes=[scenes[photo] for photo in photos])
    map50, mean, *ap50 = (_figures(row.tolist()) for row in np.round(samples, _DIGITS))
    kept = ResampledSplit(
        run=split.run,
        form=split.form,
        split=split.split,
        drawn_from=digest_of(scenes),
        map50=map50,
        map=mean,
        ap50=dict(zip(split.labels, ap50, strict=True)),
    )
    return canonical_json(kept.model_dump(mode="json")).encode()


def _figures(row: list[float]) -> Figures:
    return tuple(None if np.isnan(value) else value for value in row)
