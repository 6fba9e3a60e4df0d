"""The photos of a finished job -> which fold of an audit judges each photo, always dealt in the same way."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shared.audit.same_name import picture_hashes
from shared.errors import TrainingError
from shared.jobs.identity import find_job
from shared.jobs.job import SPLITS
from shared.jobs.manifest import Manifest
from shared.picture.alike import groups_alike
from shared.scenes import scene_of
from shared.storage import Storage
from shared.text import counted
from trainer.data.shard_pictures import truth_from_store


@dataclass(frozen=True, slots=True, kw_only=True)
class DealtPhoto:
    """A photo of any split: `image_id` as in the truth, `classes` its class ids, `hash` None if it is like no other.

    `scene` is the same for photos of one scene, as far as their names tell; "" if they do not.
    """

    image_id: int
    file_name: str
    classes: frozenset[int]
    hash: int | None
    scene: str = ""


def photos_of(storage: Storage, manifest: Manifest) -> list[DealtPhoto]:
    """All photos of a finished job, by file name."""
    job = find_job(storage, manifest.job)
    hashes, group_by = ({}, None) if job is None else (picture_hashes(storage, job), job.spec.group_by)
    photos = []
    for split in SPLITS:
        if manifest.examples(split) == 0:
            continue
        truth = truth_from_store(storage, manifest, split)
        classes: dict[int, set[int]] = {image["id"]: set() for image in truth["images"]}
        for annotation in truth["annotations"]:
            classes[annotation["image_id"]].add(annotation["category_id"])
        photos += [
            DealtPhoto(
                image_id=image["id"],
                file_name=image["file_name"],
                classes=frozenset(classes[image["id"]]),
                hash=hashes.get(image["file_name"]),
                scene=scene_of(image["file_name"], group_by),
            )
            for image in truth["images"]
        ]
    return sorted(photos, key=lambda photo: photo.file_name)


def deal(photos: Sequence[DealtPhoto], folds: int) -> dict[int, int]:
    """The part (1 to `folds`) of each photo, by image id.

    Photos that are nearly the same go to one part, and so do those of one scene unless there are fewer groups than
    parts: a model that has learned one knows the labels of the other. Every part gets its share of the photos and of
    each class; the rarest class is dealt first (Sechidis et al., On the Stratification of Multi-Label Data, 2011).

    Raises:
        TrainingError: There are fewer photos than parts.
    """
    if len(photos) < folds:
        raise TrainingError(
            f"{counted(len(photos), 'photo')} cannot be dealt to {folds} folds: each needs one at least"
        )
    photos = sorted(photos, key=lambda photo: photo.file_name)
    alike = groups_alike([photo.hash for photo in photos], most=max(1, len(photos) // (2 * folds)))
    groups: dict[int, list[DealtPhoto]] = {}
    joined = _joined(alike, [photo.scene for photo in photos])
    for photo, first in zip(photos, joined if len(set(joined)) >= folds else alike, strict=True):
        groups.setdefault(first, []).append(photo)
    frequency = Counter(class_id for photo in photos for class_id in photo.classes)
    parts = range(1, folds + 1)
    by_class = {part: Counter[int]() for part in parts}
    sizes, dealt = Counter[int](), dict[int, int]()

    def rarest(group: Sequence[DealtPhoto]) -> int:
        return min((class_id for photo in group for class_id in photo.classes), key=_by(frequency), default=0)

    def need(group: Sequence[DealtPhoto]) -> tuple[int, int, str]:
        return frequency.get(rarest(group), len(photos) + 1), -len(group), group[0].file_name

    for group in sorted(groups.values(), key=need):
        class_id = rarest(group)
        part = min(parts, key=lambda part: (by_class[part][class_id], sizes[part], part))
        for photo in group:
            by_class[part].update(photo.classes or {0})
            sizes[part] += 1
            dealt[photo.image_id] = part
    return dealt


def _joined(alike: Sequence[int], scenes: Sequence[str]) -> list[int]:
    """The group of each photo, after groups of similar photos are joined with all others of the same scenes."""
    above, of_scene = list(alike), dict[str, int]()

    def first(place: int) -> int:
        while above[place] != place:
            place = above[place]
        return place

    for place, scene in enumerate(scenes):
        if scene:
            low, high = sorted((first(place), first(of_scene.setdefault(scene, place))))
            above[high] = low
    return [first(place) for place in range(len(above))]


def torn_scenes(photos: Sequence[DealtPhoto], dealt: Mapping[int, int]) -> list[str]:
    """The scenes whose photos are spread over several parts."""
    parts: dict[str, set[int]] = {}
    for photo in photos:
        parts.setdefault(photo.scene, set()).add(dealt[photo.image_id])
    return sorted(scene for scene, found in parts.items() if scene and len(found) > 1)


def _by(frequency: Mapping[int, int]) -> Callable[[int], tuple[int, int]]:
    return lambda class_id: (frequency[class_id], class_id)


def unlearned(photos: Sequence[DealtPhoto], dealt: Mapping[int, int], part: int) -> frozenset[int]:
    """The class ids that a fold never sees, because all their objects are on photos of its own part."""
    learned = {class_id for photo in photos if dealt[photo.image_id] != part for class_id in photo.classes}
    return frozenset(class_id for photo in photos for class_id in photo.classes) - learned
