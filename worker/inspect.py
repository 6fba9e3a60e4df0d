"""Finished shards -> a grid of their pictures with boxes and labels, and one record spelled out.

It reads the records themselves, not the input, so a person sees the data that the trainer will see.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np

from shared.colours import colour_of
from shared.drawing import Dash, Mark, Pixels, caption, draw_marks, grid
from shared.errors import ShardError
from shared.jobs import schema
from shared.jobs.identity import find_job, read_receipt, readable_jobs
from shared.jobs.job import Split
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import check_shard
from shared.storage import Storage
from shared.text import printable
from worker.record.example import Value, parse_example
from worker.record.tfrecord import read_records

Features = dict[str, list[Value]]

# The side of one tile of the grid.
TILE_PX: Final = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A record that was drawn at random: its shard, its number there from 0, and its features."""

    shard: str
    number: int
    features: Features


def draw_records(storage: Storage, job: str, *, count: int, seed: int, split: Split | None = None) -> list[Drawn]:
    """Draw `count` random records (or all, if fewer) from a job's finished shards, or from those of one `split`.

    They are in the order of the shards; the same seed draws the same records.

    Raises:
        ShardError: There is no such job, it has no finished shard with a record, or a shard is damaged.
    """
    known = find_job(storage, job)
    if known is None:
        names = ", ".join(each.job for each in readable_jobs(storage)) or "none"
        raise ShardError(f"no job {job!r} in {storage.root} (there are: {names})")
    found = [read_receipt(storage, known, shard) for shard in known.shards]
    receipts = [one for one in found if one and one.size_bytes is not None and split in (None, one.split)]
    places = [(receipt.shard, number) for receipt in receipts for number in range(receipt.written)]
    if not places:
        raise ShardError(f"{storage.url(JobPaths(job).shards)}: no finished shard with a record")
    # No cryptographic randomness: the seed lets two people see the same pictures.
    chosen = set(random.Random(seed).sample(places, min(count, len(places))))  # noqa: S311
    drawn: list[Drawn] = []
    for receipt in receipts:
        if any(shard == receipt.shard for shard, _ in chosen):
            check_shard(storage, receipt, with_digest=False)
            key = JobPaths(job).tfrecord(receipt.shard)
            for number, record in enumerate(read_records(storage.read(key), file=storage.url(key))):
                if (receipt.shard, number) in chosen:
                    drawn.append(Drawn(shard=receipt.shard, number=number, features=parse_example(record)))
    return drawn


def draw_grid(records: Sequence[Drawn]) -> Pixels:
    """The pictures of `records` with their boxes, in a grid that is nearly square: uint8 [H, W, 3], BGR."""
    return grid([_draw_tile(drawn) for drawn in records], math.ceil(math.sqrt(len(records))), gap=0)


def _draw_tile(drawn: Drawn) -> Pixels:
    features = drawn.features
    encoded = np.frombuffer(_bytes(features, schema.ENCODED)[0], np.uint8)
    decoded = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    if decoded is None:
        raise ShardError(f"{drawn.shard}: the picture of record {drawn.number} cannot be decoded")
    picture = np.asarray(cv2.resize(decoded, (TILE_PX, TILE_PX), interpolation=cv2.INTER_LINEAR), np.uint8)
    keys = (schema.XMIN, schema.YMIN, schema.XMAX, schema.YMAX, schema.CLASS_LABEL, schema.DIFFICULT)
    columns = [[float(value) for value in features[key]] for key in keys]
    marks = []
    for name, *corners, class_id, difficult in zip(_texts(features, schema.CLASS_TEXT), *columns, strict=True):
        xmin, ymin, xmax, ymax = (fraction * (TILE_PX - 1) for fraction in corners)
        dash: Dash = "dashed" if difficult else "solid"
        text = f"{name}?" if difficult else name
        marks.append(Mark(box=(xmin, ymin, xmax, ymax), text=text, colour=colour_of(int(class_id)), dash=dash))
    # The smallest box comes first, so that its name gets the best place.
    marks.sort(key=lambda mark: (mark.box[2] - mark.box[0]) * (mark.box[3] - mark.box[1]))
    file_name = _texts(features, schema.FILENAME)[0].rsplit("/", 1)[-1]
    return caption(draw_marks(picture, marks), f"{drawn.shard[:11]} #{drawn.number} {file_name}")


def _texts(features: Features, key: str) -> list[str]:
    return [printable(value.decode(errors="replace")) for value in _bytes(features, key)]


def _bytes(features: Features, key: str) -> list[bytes]:
    return [value for value in features[key] if isinstance(value, bytes)]


def describe_record(drawn: Drawn) -> str:
    """Every feature of a record on its own line: key, kind and values."""
    lines = [f"{drawn.shard} record {drawn.number}"]
    for key, kind in schema.FEATURES.items():
        values = [_spell(key, value) for value in drawn.features[key]]
        lines.append(f"  {key:<26} {kind:<6} {', '.join(values) or '(empty)'}")
    return "\n".join(lines)


def _spell(key: str, value: Value) -> str:
    if key == schema.ENCODED and isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, bytes):
        return printable(value.decode(errors="replace"))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
