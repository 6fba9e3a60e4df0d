"""Shards of a finished job -> stored pictures, one by one, for calibrating, measuring and drawing in the exporter."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from shared.jobs.job import Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.storage import Storage
from trainer.data.examples import ShardPicture, shard_urls
from trainer.data.records import decode_picture, record_groups
from trainer.data.shard_cache import ShardCache

# A split's pictures, streamed anew at each call, and its truth in COCO form, in pixels of the stored pictures.
Pictures = Callable[[Split], Iterable[ShardPicture]]
Truth = Callable[[Split], Mapping[str, Any]]


def truth_from_store(storage: Storage, manifest: Manifest, split: Split) -> dict[str, Any]:
    """The COCO-form truth of `split`, with the categories filled in from the manifest."""
    truth: dict[str, Any] = json.loads(storage.read(JobPaths(manifest.job).annotations(split)))
    return {**truth, "categories": [{"id": index, "name": name} for index, name in enumerate(manifest.labels, start=1)]}


def counted_objects(truth: Mapping[str, Any]) -> int:
    """How many objects of a COCO-form truth must be found: all except difficult ones, which count neither way."""
    return sum(not row.get("ignore") for row in truth.get("annotations", ()))


def pictures_of(storage: Storage, manifest: Manifest, cache: ShardCache | None) -> Pictures:
    """A function from a split to its pictures, streamed anew at each call in the order of the shards.

    `cache` is for shards in a bucket; None for a store in a folder.
    """

    def stream(split: Split) -> Iterator[ShardPicture]:
        for group in record_groups(shard_urls(storage, manifest, [split]), cache):
            columns = (group[key] for key in ("encoded", "filename", "source_id"))
            for encoded, filename, source_id in zip(*columns, strict=True):
                name = filename.decode()
                rgb = decode_picture(encoded, name, manifest.image_size)
                yield ShardPicture(image_id=int(source_id), file_name=name, rgb=rgb)

    return stream


def truth_of(storage: Storage, manifest: Manifest) -> Truth:
    """A function from a split to its COCO-form truth, each read once."""
    return cache(partial(truth_from_store, storage, manifest))
