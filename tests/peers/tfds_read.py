"""TensorFlow Datasets over a finished job: `python tfds_read.py JOB_FOLDER`; runs in an environment of its own.

Prints one JSON object: split → [records, objects, sorted file names].
"""

import json
import sys

import tensorflow_datasets as tfds  # type: ignore[import-not-found]  # only in the environment of the peers test


def main(folder: str) -> None:
    builder = tfds.builder_from_directory(folder)
    found = {}
    for split in builder.info.splits:
        examples = list(builder.as_dataset(split=split).as_numpy_iterator())
        objects = sum(len(example["image/object/bbox/xmin"]) for example in examples)
        names = sorted(example["image/filename"].decode() for example in examples)
        found[split] = [len(examples), objects, names]
    print(json.dumps(found))


main(sys.argv[1])
