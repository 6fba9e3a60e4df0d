"""Two runs' detections on the same photos -> how much better the second is, class by class, and how certain that is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.audit.seen import SeenSplit
from shared.text import class_name, counted
from trainer.evaluation.bootstrap import Interval, interval, resampled
from trainer.evaluation.coco_map import judge
from trainer.evaluation.detections_file import Chosen, choose, judged_order

_POINTS: Final = (-100.0, 100.0)
# Boxes of the same photo are equal if they differ by less than this share of the picture: pictures of different sizes
# round their boxes differently.
_SAME_BOX: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A figure of both runs in percent, and how many points better the second is, with the 95 % interval.

    `label` is a class (AP50), or `mAP50` or `mAP` for all; the figures are None if no object counts.
    """

    label: str
    objects: int
    first: float | None
    second: float | None
    points: float | None
    interval: Interval | None

    @property
    def is_sure(self) -> bool:
        """Whether the difference cannot be explained by chance."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two runs compared on the photos that both were measured on.

    `split` is the photos' split, "" if it differs. `photos` is how many they have in common, `only` how many only one
    run has, by run; `relabelled` is how many of those in common have other annotations now (None: not comparable,
    because pictures are resized differently); `missing_classes` are classes that only one run has, by run. `rows` are
    mAP50, mAP and the classes that both have. `learnt` are runs that were measured on their training photos although
    the other was not. `other_pictures` counts photos with only their name in common; they are not among `photos`.
    """

    first: str
    second: str
    split: str
    photos: int
    only: Mapping[str, int]
    relabelled: int | None
    missing_classes: Mapping[str, Sequence[str]]
    rows: Sequence[Difference]
    learnt: Sequence[str] = ()
    other_pictures: int = 0

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {**asdict(self), "rows": [{**asdict(row), "is_sure": row.is_sure} for row in self.rows]}

    @property
    def kind(self) -> str:
        """What one of the photos is called, such as `test photo`."""
        return f"{self.split} photo".strip()

    @property
    def remarks(self) -> list[str]:
        """What to know about the photos, one line each."""
        said = [_left_out(counted(count, self.kind), run, count) for run, count in self.only.items() if count]
        if self.other_pictures:
            alike = f"{counted(self.other_pictures, 'name')} of both"
            said.append(f"{alike} {'is' if self.other_pictures == 1 else 'are'} of another picture in each: left out")
        said += [f"{run} has learnt from these very photos: it looks better than it is" for run in self.learnt]
        if self.relabelled is None:
            said.append("pictures are fitted otherwise (--resize): each run is judged by its own annotations")
        elif self.relabelled:
            have = "has" if self.relabelled == 1 else "have"
            said.append(
                f"{self.relabelled} of the photos {have} other annotations now: judged by those of {self.second}"
            )
        said += [f"only {run} knows {', '.join(names)}" for run, names in self.missing_classes.items() if names]
        return said


def _left_out(photos: str, run: str, count: int) -> str:
    are = "is" if count == 1 else "are"
    return f"{photos} of {run} {are} not among the other's and {are} left out"


def paired(
    first: SeenSplit, second: SeenSplit, names: tuple[str, str], others: Collection[str] = frozenset()
) -> Paired:
    """Compare two runs, called `names`, on what both have: photos by file, except `others`, and classes by name.

    Both are judged by the second run's annotations if their pictures are resized alike, otherwise each by its own.
    """
    # Versions up to 0.2.0 did not compose accents.
    first, second = (
        each.model_copy(update={"labels": tuple(map(class_name, each.labels))}) for each in (first, second)
    )
    theirs, ours, splits, scenes = first.photos(), second.photos(), (first.split, second.split), second.scenes()
    common = [name for name in judged_order(second) if name in theirs]
    photos = [name for name in common if name not in others]
    labels = [label for label in second.labels if label in first.labels]
    now, relabelled, before = choose(second, photos, labels), None, choose(first, photos, labels)
    if first.resize == second.resize:
        before = choose(first, photos, labels, second.image_size / first.image_size)
        relabelled = _relabelled(before, now, second.image_size)
        before = Chosen(truth=now.truth, seen=before.seen)
    return Paired(
        first=names[0],
        second=names[1],
        split=second.split if second.split == first.split else "",
        photos=len(photos),
        only={names[0]: len(theirs) - len(common), names[1]: len(ours) - len(common)},
        relabelled=relabelled,
        missing_classes={
            names[0]: [label for label in first.labels if label not in second.labels],
            names[1]: [label for label in second.labels if label not in first.labels],
        },
        rows=_differences(before, now, labels, {name: scenes[name] for name in photos}) if photos and labels else (),
        learnt=[name for name, each in zip(names, splits, strict=True) if each == "train" and len({*splits}) > 1],
        other_pictures=len(common) - len(photos),
    )


def _differences(first: Chosen, second: Chosen, labels: Sequence[str], scenes: Mapping[str, str]) -> list[Difference]:
    """Differences in mAP50, mAP and the AP50 of each class; the resamples are the same for both.

    `scenes` has the scene of each photo, in the order of judging.
    """
    figures, samples, objects = [], [], []
    for chosen in (first, second):
        found, matches = judge(chosen.truth, chosen.seen)
        by_class = [row["ap50"] for row in found.per_class.values()]
        figures.append([found.map50, found.map, *by_class])
        samples.append(100 * resampled(matches, names=[*scenes], scenes=[*scenes.values()]))
        objects = [int(of_class.objects.sum()) for of_class in matches]
    counts = [sum(objects), sum(objects), *objects]
    rows = zip(["mAP50", "mAP", *labels], counts, *figures, samples[1] - samples[0], strict=True)
    return [_difference(*row) for row in rows]


def _difference(
    label: str, objects: int, first: float | None, second: float | None, samples: NDArray[np.float64]
) -> Difference:
    if first is None or second is None or objects == 0:
        return Difference(label=label, objects=objects, first=None, second=None, points=None, interval=None)
    points = 100 * (second - first)
    bounds = interval(points, samples, _POINTS)
    return Difference(
        label=label, objects=objects, first=100 * first, second=100 * second, points=points, interval=bounds
    )


def _relabelled(first: Chosen, second: Chosen, side_px: int) -> int:
    """The number of photos whose annotations differ."""
    before, now = _boxes_by_image(first.truth), _boxes_by_image(second.truth)
    return sum(not _are_same(before.get(at, []), now.get(at, []), side_px) for at in before.keys() | now.keys())


def _boxes_by_image(truth: Mapping[str, Any]) -> dict[int, list[tuple[float, ...]]]:
    """By image id, each object's class, whether it counts neither way, and its box."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for row in truth["annotations"]:
        found.setdefault(row["image_id"], []).append((row["category_id"], bool(row.get("ignore")), *row["bbox"]))
    return found


def _are_same(first: Sequence[tuple[float, ...]], second: Sequence[tuple[float, ...]], side_px: int) -> bool:
    """Whether two lists hold the same objects in any order."""
    left = list(second)
    for row in first:
        near = (
            at
            for at, other in enumerate(left)
            if other[:2] == row[:2] and np.allclose(other[2:], row[2:], rtol=0, atol=_SAME_BOX * side_px)
        )
        at = next(near, None)
        if at is None:
            return False
        del left[at]
    return not left
