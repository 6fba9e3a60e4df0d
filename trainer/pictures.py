"""Shards of a finished job → stored pictures, one by one; what the exporter calibrates, measures and draws with."""

from collections.abc import Iterator
from typing import Any

from shared.job import Split
from shared.manifest import Manifest
from shared.storage import Storage
from trainer.dataset import shard_urls
from trainer.evaluate import truth_from_store
from trainer.measure import Pictures, StoredPicture, Truth
from trainer.records import decode_picture, record_groups


def pictures_of(storage: Storage, manifest: Manifest) -> Pictures:
    """A function from a split to its pictures, streamed anew at each call in the order of the shards."""

    def stream(split: Split) -> Iterator[StoredPicture]:
        for group in record_groups(shard_urls(storage, manifest, [split])):
            for encoded, filename, source_id in zip(
                group["encoded"], group["filename"], group["source_id"], strict=True
            ):
                name = filename.decode()
                rgb = decode_picture(encoded, name, manifest.image_size)
                yield StoredPicture(image_id=int(source_id), file_name=name, rgb=rgb)

    return stream


def truth_of(storage: Storage, manifest: Manifest) -> Truth:
    """A function from a split to its COCO-form truth, each read once."""
    read: dict[Split, dict[str, Any]] = {}

    def truth(split: Split) -> dict[str, Any]:
        if split not in read:
            read[split] = truth_from_store(storage, manifest, split)
        return read[split]

    return truth
