"""Labels and detections in pixels of the stored pictures -> the same in pixels of the photos, for the audit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shared.errors import TrainingError
from shared.jobs.job import SPLITS
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.placement import Placement, place
from shared.storage import Storage
from trainer.audit.photos import AuditedPhoto
from trainer.data.shard_pictures import truth_from_store
from trainer.detections import Detections, DetectionsById, Floats
from trainer.evaluation.curves import TruthBoxes, truth_by_image


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoFrame(AuditedPhoto):
    """An audited photo, and where it lies in the stored picture with this id."""

    image_id: int
    placement: Placement


def photo_frames(manifest: Manifest, storage: Storage, seen: DetectionsById) -> tuple[list[PhotoFrame], list[str]]:
    """All photos of a job by file name, except those of unknown size because they were removed or replaced.

    Args:
        manifest: The job's manifest.
        storage: Holds the job's truth, and the photos' sizes as noted when the audit was submitted.
        seen: Detections by image id, boxes in pixels of the stored pictures.

    Returns:
        The photos, and the file names of those left out.

    Raises:
        TrainingError: There is no list of sizes.
    """
    key = JobPaths(manifest.job).photo_sizes(manifest.incarnation)
    content = storage.read_or_none(key)
    if content is None:
        raise TrainingError(f"{storage.url(key)}: absent; `voc2tflite audit {manifest.job}` writes it")
    sizes: Mapping[str, tuple[int, int]] = json.loads(content)
    frames, left_out = [], []
    for split in SPLITS:
        if manifest.examples(split) == 0:
            continue
        truth = truth_from_store(storage, manifest, split)
        marked = truth_by_image(truth)
        for image in truth["images"]:
            if image["file_name"] not in sizes:
                left_out.append(image["file_name"])
                continue
            frames.append(_frame(manifest, image["id"], image["file_name"], sizes, marked[image["id"]], seen))
    return sorted(frames, key=lambda frame: frame.file_name), sorted(left_out)


def _frame(
    manifest: Manifest,
    image_id: int,
    name: str,
    sizes: Mapping[str, tuple[int, int]],
    marked: TruthBoxes,
    seen: DetectionsById,
) -> PhotoFrame:
    width, height = sizes[name]
    placement = place(width, height, manifest.image_size, manifest.resize)
    found = seen.get(image_id, _NOTHING)
    return PhotoFrame(
        image_id=image_id,
        file_name=name,
        width=width,
        height=height,
        placement=placement,
        marked=TruthBoxes(
            boxes=_back(placement, marked.boxes, (width, height)),
            class_ids=marked.class_ids,
            is_ignored=marked.is_ignored,
        ),
        seen=Detections(
            boxes=_back(placement, found.boxes, (width, height)), class_ids=found.class_ids, scores=found.scores
        ),
    )


_NOTHING = Detections(
    boxes=np.zeros((0, 4), np.float32), class_ids=np.zeros(0, np.int64), scores=np.zeros(0, np.float32)
)


def _back(placement: Placement, boxes: Floats, size: tuple[int, int]) -> Floats:
    """Move `boxes`, float32 [N, 4], from pixels of the stored picture into those of the photo, clipped to it."""
    corner = np.array([placement.left, placement.top] * 2, np.float32)
    scale = np.array([placement.scale_x, placement.scale_y] * 2, np.float32)
    most = np.array([*size, *size], np.float32)
    moved: Floats = np.clip((boxes - corner) / scale, 0, most).astype(np.float32)
    return moved
