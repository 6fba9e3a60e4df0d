"""Run by another environment's Python: VOC XML as CVAT imports it, with datumaro; prints its boxes as JSON.

CVAT takes a flat archive of XML and lays it out as a devkit before datumaro reads it (`_import` in
cvat/apps/dataset_manager/formats/pascal_voc.py): so it is done here.
"""

import json
import shutil
import sys
from pathlib import Path

from datumaro.components.dataset import Dataset

flat, devkit, labels = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
(devkit / "Annotations").mkdir(parents=True)
(devkit / "ImageSets/Main").mkdir(parents=True)
# CVAT writes the label map of its task.
(devkit / "labelmap.txt").write_text("".join(f"{name}:::\n" for name in ["background", *labels]))
for path in sorted(flat.glob("*.xml")):
    shutil.copy(path, devkit / "Annotations")
    with (devkit / "ImageSets/Main/train.txt").open("a") as listed:
        listed.write(f"{path.stem}\n")
dataset = Dataset.import_from(str(devkit), "voc")
names = [label.name for label in dataset.categories()[next(iter(dataset.categories()))]]
print(
    json.dumps(
        {
            item.id: [
                [names[box.label], box.x, box.y, box.x + box.w, box.y + box.h, bool(box.attributes["difficult"])]
                for box in item.annotations
            ]
            for item in dataset
        }
    )
)
