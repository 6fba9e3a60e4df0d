"""A tiny set of real pictures, drawn: bright squares (class 0) and dark discs (class 1) on gray."""

from typing import Any

import cv2
import numpy as np

from shared.specs.augmentation import Augmentation
from trainer.data.examples import Examples

UNCHANGED = Augmentation(
    flip_horizontal=0, mosaic=0, zoom=0, aspect=0, translate=0, brightness=0, contrast=0, saturation=0, hue_deg=0
)


def drawn_examples(count: int, side: int = 64, seed: int = 0, most: int = 3) -> Examples:
    rng = np.random.default_rng(seed)
    pictures, boxes, labels = [], [], []
    for _ in range(count):
        picture = rng.integers(100, 140, (side, side, 3)).astype(np.uint8)
        corners, classes = [], []
        for _ in range(int(rng.integers(1, most + 1))):
            size = int(rng.integers(side // 6, side // 3))
            x, y = (int(v) for v in rng.integers(0, side - size, 2))
            label = int(rng.integers(0, 2))
            if label == 0:
                cv2.rectangle(picture, (x, y), (x + size - 1, y + size - 1), (240, 220, 200), -1)
            else:
                cv2.circle(picture, (x + size // 2, y + size // 2), size // 2, (10, 20, 40), -1)
            corners.append([y / side, x / side, (y + size) / side, (x + size) / side])
            classes.append(label)
        pictures.append(picture)
        boxes.append(np.array(corners, np.float32).reshape(-1, 4))
        labels.append(np.array(classes, np.int32))
    return Examples(
        pictures=np.stack(pictures),
        boxes=tuple(boxes),
        labels=tuple(labels),
        source_ids=np.arange(1, count + 1),
        filenames=tuple(f"drawn_{row:03d}.png" for row in range(count)),
    )


def coco_truth(examples: Examples) -> dict[str, Any]:
    side = examples.pictures.shape[1]
    rows: list[dict[str, Any]] = []
    for source_id, corners, classes in zip(examples.source_ids, examples.boxes, examples.labels, strict=True):
        for (ymin, xmin, ymax, xmax), label in zip(corners * side, classes, strict=True):
            box = [float(xmin), float(ymin), float(xmax - xmin), float(ymax - ymin)]
            rows.append(
                {
                    "id": len(rows) + 1,
                    "image_id": int(source_id),
                    "category_id": int(label) + 1,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                    "ignore": 0,
                }
            )
    return {
        "images": [
            {"id": int(source_id), "file_name": name, "width": side, "height": side}
            for source_id, name in zip(examples.source_ids, examples.filenames, strict=True)
        ],
        "annotations": rows,
        "categories": [{"id": 1, "name": "square"}, {"id": 2, "name": "disc"}],
    }
