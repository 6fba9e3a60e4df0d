"""A detector on a split -> detections by picture -> the figures of `metrics.json`, and how certain they are.

One loop for Keras weights and for every exported form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.examples import ShardPicture
from trainer.detections import Detect, DetectionsById
from trainer.evaluation.bootstrap import LEAST_PICTURES, Interval, interval, resampled, share_interval
from trainer.evaluation.coco_map import judge

# Pictures between two signs of life: at 0.2 s per picture on a slow machine still well below the guard's limit.
_ADVANCE_EVERY: Final = 32
_POINTS: Final = (-100.0, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The detections of a split, judged against its truth.

    `figures` are as in `metrics.json`: `map50`, `map`, their intervals, `pictures`, `objects`, `per_class`. `map50` has
    the figures of the resamples, float64 [B]; it is empty with fewer than two pictures. `scenes` is among the figures
    only if several pictures show the same one.
    """

    figures: dict[str, Any]
    map50: NDArray[np.float64]


def measure(truth: Mapping[str, Any], seen: DetectionsById) -> Measured:
    """Judge the detections of a split's pictures, given as for `average_precision`, with 95 % intervals."""
    found, matches = judge(truth, seen)
    objects = [int(of_class.objects.sum()) for of_class in matches]
    scene_by_id = {image["id"]: image.get("scene", "") for image in truth["images"]}
    scenes = [scene_by_id.get(image_id, "") for image_id in sorted(seen)]
    samples = resampled(matches, scenes=scenes) if len(seen) >= LEAST_PICTURES else np.zeros((2 + len(matches), 0))
    per_class = {}
    for (name, row), count, of_class in zip(found.per_class.items(), objects, samples[2:], strict=True):
        bounds = None if row["ap50"] is None else list(share_interval(row["ap50"], of_class, count))
        per_class[name] = {**row, "ap50_interval": bounds, "objects": count}
    figures = {
        "map50": found.map50,
        "map50_interval": list(share_interval(found.map50, samples[0], sum(objects))),
        "map": found.map,
        "map_interval": list(share_interval(found.map, samples[1], sum(objects))),
        "pictures": len(seen),
        **_shown_scenes(scenes),
        "objects": sum(objects),
        "per_class": per_class,
    }
    return Measured(figures=figures, map50=samples[0])


def _shown_scenes(scenes: Sequence[str]) -> dict[str, int]:
    """How many scenes the pictures show, if that is fewer than there are pictures."""
    count = len({*scenes} - {""}) + scenes.count("")
    return {"scenes": count} if count < len(scenes) else {}


def drop_interval(exact: Measured, rounded: Measured) -> Interval:
    """The 95 % interval of the loss of mAP50 from `exact` to `rounded` on the same pictures, in points."""
    drop = 100 * (exact.figures["map50"] - rounded.figures["map50"])
    return interval(drop, 100 * (exact.map50 - rounded.map50), _POINTS)


def detect_all(
    detect: Detect, pictures: Iterable[ShardPicture], *, batch: int = 1, advance: Callable[..., None] | None = None
) -> DetectionsById:
    """The detections in every picture by image id, boxes in pixels of the stored picture.

    Args:
        detect: The detector.
        pictures: The pictures; each is used once.
        batch: Pictures per call. The last batch is filled up with zeros, so that a network is traced only once.
        advance: Called now and then with the number of `pictures` done so far.
    """
    found: DetectionsById = {}
    stream = iter(pictures)
    while group := list(islice(stream, batch)):
        padding = [np.zeros_like(group[0].rgb)] * (batch - len(group))
        seen = detect(np.stack([*(picture.rgb for picture in group), *padding]))
        # The padding's detections, which come after those of the group, are dropped.
        found |= dict(zip((picture.image_id for picture in group), seen, strict=False))
        if advance is not None and len(found) % _ADVANCE_EVERY < len(group):
            advance(pictures=len(found))
    return found
