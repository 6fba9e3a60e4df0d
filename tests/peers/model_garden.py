"""Model Garden's own decoder over shards: `python model_garden.py EXPECTED.json`; runs in an environment of its own.

EXPECTED.json is `[{"tfrecord": path, "records": [{"source_id", "size", "boxes", "labels", "areas", "crowds"}]}]`, from
our own reader: boxes are (ymin, xmin, ymax, xmax) in [0, 1]. Ends with 1 at the first disagreement.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import tensorflow as tf
from official.vision.dataloaders.tf_example_decoder import (  # type: ignore[import-not-found]  # not in the project's
    TfExampleDecoder,
)


def check_shard(path: str, records: list[dict[str, Any]]) -> int:
    """Compare every record of one shard; the number of objects compared."""
    decoder = TfExampleDecoder()
    decoded = [decoder.decode(serialized) for serialized in tf.data.TFRecordDataset(path)]
    assert len(decoded) == len(records), f"{path}: {len(decoded)} records, our reader found {len(records)}"
    for theirs, ours in zip(decoded, records, strict=True):
        where = f"{path}: source_id {ours['source_id']}"
        assert theirs["source_id"].numpy().decode() == ours["source_id"], where
        assert theirs["image"].shape == (ours["size"], ours["size"], 3), where
        assert (int(theirs["height"]), int(theirs["width"])) == (ours["size"], ours["size"]), where
        boxes = np.asarray(ours["boxes"], np.float32).reshape(-1, 4)
        np.testing.assert_array_equal(theirs["groundtruth_boxes"].numpy().reshape(-1, 4), boxes, err_msg=where)
        np.testing.assert_array_equal(theirs["groundtruth_classes"].numpy(), np.asarray(ours["labels"], np.int64))
        np.testing.assert_array_equal(theirs["groundtruth_area"].numpy(), np.asarray(ours["areas"], np.float32))
        np.testing.assert_array_equal(theirs["groundtruth_is_crowd"].numpy(), np.asarray(ours["crowds"], bool))
    return sum(len(record["labels"]) for record in records)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        shards = json.load(file)
    objects = [check_shard(shard["tfrecord"], shard["records"]) for shard in shards]
    records = sum(len(shard["records"]) for shard in shards)
    versions = ", ".join(f"{name} {version(name)}" for name in ("tf-models-official", "tensorflow", "numpy"))
    print(f"Model Garden agrees: {len(shards)} shards, {records} records, {sum(objects)} objects ({versions})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
