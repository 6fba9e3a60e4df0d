"""Finished shards → a grid of their pictures with boxes and labels, and one record spelled out.

It reads the records themselves, not the input: it is how a person believes the data that the trainer will see.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared import schema
from shared.errors import ShardError
from shared.job import Split
from shared.manifest import JobPaths, check_shard, read_receipt, shards_done
from shared.storage import Storage
from worker.example import Value, parse_example
from worker.tfrecord import read_records

Pixels = NDArray[np.uint8]
Features = dict[str, list[Value]]

# Side of one tile of the grid, and the strip under it that names the file.
TILE_PX: Final = 320
CAPTION_PX: Final = 20

# Colour-blind safe (Okabe and Ito), as BGR; class ids take them by turns.
_COLOURS: Final = (
    (0, 159, 230),
    (233, 180, 86),
    (115, 158, 0),
    (66, 228, 240),
    (178, 114, 0),
    (0, 94, 213),
    (167, 121, 204),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A record that was drawn from a shard: where it stands and what it holds."""

    shard: str
    number: int
    features: Features


def draw_records(storage: Storage, job: str, *, count: int, seed: int, split: Split | None = None) -> list[Drawn]:
    """Draw random records from the finished shards of a job, in the order of the shards.

    Args:
        storage: The store.
        job: Its name.
        count: How many; fewer come where there are fewer.
        seed: The same seed draws the same records.
        split: Only from this split.

    Raises:
        ShardError: The job has no finished shard with a record, or a shard is damaged.
    """
    receipts = [receipt for name in shards_done(storage, job) if (receipt := read_receipt(storage, job, name))]
    places = [
        (receipt, number)
        for receipt in receipts
        if receipt.size_bytes is not None and split in (None, receipt.split)
        for number in range(receipt.written)
    ]
    if not places:
        raise ShardError(f"{storage.url(JobPaths(job).shards)}: no finished shard with a record")
    # Not for secrets: the seed is there so that two people see the same pictures.
    chosen = sorted(random.Random(seed).sample(range(len(places)), min(count, len(places))))  # noqa: S311
    drawn: list[Drawn] = []
    for receipt in receipts:
        numbers = {places[index][1] for index in chosen if places[index][0] is receipt}
        if numbers:
            check_shard(storage, receipt, with_digest=False)
            key = JobPaths(job).tfrecord(receipt.shard)
            for number, record in enumerate(read_records(storage.read(key), file=storage.url(key))):
                if number in numbers:
                    drawn.append(Drawn(shard=receipt.shard, number=number, features=parse_example(record)))
    return drawn


def draw_grid(records: Sequence[Drawn]) -> Pixels:
    """The pictures of `records` with their boxes, as near to a square of tiles as possible: uint8 [H, W, 3], BGR."""
    columns = math.ceil(math.sqrt(len(records)))
    tiles = [_draw_tile(drawn) for drawn in records]
    blank = np.full_like(tiles[0], 255)
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    rows[-1] = rows[-1] + [blank] * (columns - len(rows[-1]))
    return np.vstack([np.hstack(row) for row in rows])


def _draw_tile(drawn: Drawn) -> Pixels:
    features = drawn.features
    encoded = np.frombuffer(_bytes(features, schema.ENCODED)[0], np.uint8)
    decoded = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    if decoded is None:
        raise ShardError(f"{drawn.shard}: the picture of record {drawn.number} cannot be decoded")
    picture = np.asarray(cv2.resize(decoded, (TILE_PX, TILE_PX), interpolation=cv2.INTER_LINEAR), np.uint8)
    keys = (schema.XMIN, schema.YMIN, schema.XMAX, schema.YMAX, schema.CLASS_LABEL, schema.DIFFICULT)
    columns = [[float(value) for value in features[key]] for key in keys]
    names = _bytes(features, schema.CLASS_TEXT)
    for name, xmin, ymin, xmax, ymax, class_id, difficult in zip(names, *columns, strict=True):
        colour = _COLOURS[int(class_id) % len(_COLOURS)]
        corners = [round(fraction * (TILE_PX - 1)) for fraction in (xmin, ymin, xmax, ymax)]
        cv2.rectangle(picture, (corners[0], corners[1]), (corners[2], corners[3]), colour, 1 if difficult else 2)
        _write(picture, _ascii(name) + ("?" if difficult else ""), (corners[0], corners[1]), colour)
    caption = np.full((CAPTION_PX, TILE_PX, 3), 255, np.uint8)
    text = f"{drawn.shard[:11]} #{drawn.number} {_ascii(_bytes(features, schema.FILENAME)[0]).rsplit('/', 1)[-1]}"
    cv2.putText(caption, text, (4, 14), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)
    return np.vstack([picture, caption]).astype(np.uint8)


def _write(picture: NDArray[np.integer[Any]], text: str, corner: tuple[int, int], colour: tuple[int, int, int]) -> None:
    """`text` in black on `colour`, inside the box's upper left `corner` and inside the tile."""
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.4, 1)
    x, y = max(0, min(corner[0], TILE_PX - width - 2)), max(0, min(corner[1], TILE_PX - height - 4))
    cv2.rectangle(picture, (x, y), (x + width + 2, y + height + 4), colour, cv2.FILLED)
    cv2.putText(picture, text, (x + 1, y + height + 1), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)


def _ascii(text: bytes) -> str:
    """What OpenCV's stroke font can write; `?` for the rest."""
    return text.decode(errors="replace").encode("ascii", "replace").decode()


def _bytes(features: Features, key: str) -> list[bytes]:
    return [value for value in features[key] if isinstance(value, bytes)]


def describe_record(drawn: Drawn) -> str:
    """Every feature of a record, one a line: key, kind and values."""
    lines = [f"{drawn.shard} record {drawn.number}"]
    for key, kind in schema.FEATURES.items():
        values = [_spell(key, value) for value in drawn.features[key]]
        lines.append(f"  {key:<26} {kind:<6} {', '.join(values) or '(empty)'}")
    return "\n".join(lines)


def _spell(key: str, value: Value) -> str:
    if key == schema.ENCODED and isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)
