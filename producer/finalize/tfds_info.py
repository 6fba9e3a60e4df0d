"""A manifest -> `dataset_info.json` and `features.json` as TensorFlow Datasets writes them. Pure.

`tfds.builder_from_directory("…/jobs/<job>")` then reads the shards as they are. Source: tensorflow_datasets 4.9,
core/proto/dataset_info.proto and core/proto/feature.proto, as JSON; it refuses fields that it does not know.
"""

from typing import Any, Final

from shared.jobs.job import SPLITS, Job, Split, shard_name
from shared.jobs.manifest import Manifest
from shared.jobs.schema import LISTS, SCALARS, FeatureKind
from shared.text import counted

_DTYPES: Final[dict[FeatureKind, str]] = {"bytes": "string", "int64": "int64", "float": "float32"}


def features() -> dict[str, Any]:
    """`features.json`: the record's keys, one tensor each, of shape [] or [N]."""
    tensors = {key: _tensor(kind, {}) for key, kind in SCALARS.items()}
    tensors |= {key: _tensor(kind, {"dimensions": ["-1"]}) for key, kind in LISTS.items()}
    return {
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
        "featuresDict": {"features": tensors},
    }


def dataset_info(job: Job, manifest: Manifest) -> dict[str, Any]:
    """`dataset_info.json`: name, what is in it, and the number of records in each shard file."""
    pictures = sum(map(manifest.examples, manifest.splits))
    objects = sum(sum(counts.values()) for counts in manifest.class_counts.values())
    side = manifest.image_size
    return {
        "name": "".join(letter if letter.isalnum() else "_" for letter in job.job),
        "version": "1.0.0",
        "description": f"{counted(pictures, 'picture')} of {side}x{side} pixels ({manifest.resize}) with "
        f"{counted(objects, 'object')} of {counted(len(manifest.labels), 'class', 'classes')} "
        f"({', '.join(manifest.labels)}), made by voc2tflite",
        "fileFormat": "tfrecord",
        "splits": [_split(job, manifest, split) for split in SPLITS if manifest.splits.get(split)],
    }


def _split(job: Job, manifest: Manifest, split: Split) -> dict[str, Any]:
    """One SplitInfo. A failed shard counts as empty, so that TFDS does not look for its file."""
    shards = {shard.file: shard for shard in manifest.splits[split]}
    count = len(job.splits[split].digests)
    files = [f"{shard_name(split, index, count)}.tfrecord" for index in range(count)]
    return {
        "name": split,
        "shardLengths": [str(shards[file].examples if file in shards else 0) for file in files],
        "numBytes": str(sum(shard.size_bytes for shard in shards.values())),
        "filepathTemplate": "shards/{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}",
    }


def _tensor(kind: FeatureKind, shape: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
        "tensor": {"dtype": _DTYPES[kind], "encoding": "none", "shape": shape},
    }
