"""Our input alone, with nothing to feed: what threads, batches made ahead and a free order of batches give.

Each variant drains the same number of batches in turns with the others, in both directions; medians, as a share of the
product's own setting. Run: `python -m tests.bench.loaders.threads`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import cv2
import tensorflow as tf

from tests.bench.loaders import ours, usual
from tests.bench.loaders.photos import make_photos
from tests.bench.loaders.work import BATCH, Work
from trainer.data import batches
from trainer.data.examples import read_examples, shard_urls


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Threads that make batches, batches made ahead, and whether batches come in the order of their steps."""

    threads: int = batches.THREADS_BESIDE_CPU
    prefetch: int = batches.PREFETCH
    is_ordered: bool = True


VARIANTS: Final = {
    "the product's": Variant(),
    "1 thread": Variant(threads=1),
    "4 threads": Variant(threads=4),
    "1 batch ahead": Variant(prefetch=1),
    "8 batches ahead": Variant(prefetch=8),
    "AUTOTUNE ahead": Variant(prefetch=tf.data.AUTOTUNE),
    "any order": Variant(is_ordered=False),
}


def opened(make: Callable[[], tf.data.Dataset], variant: Variant) -> Any:
    """The endless batches of `make` under `variant`, as an iterator."""
    with (
        mock.patch.object(batches, "batch_threads", return_value=variant.threads),
        mock.patch.object(batches, "PREFETCH", variant.prefetch),
    ):
        stream = make()
    options = tf.data.Options()
    options.deterministic = variant.is_ordered
    return iter(stream.with_options(options))


def images_per_s(stream: Any, count: int) -> float:
    """The rate at which `count` batches are to be had."""
    began_s = time.perf_counter()
    for _ in range(count):
        next(stream)
    return count * BATCH / (time.perf_counter() - began_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", default=640, type=int, help=f"a multiple of {BATCH}")
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--batches", default=40, type=int, help="a round of a variant")
    parser.add_argument("--folder", default=Path("out/bench-loaders"), type=Path)
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    work = Work(
        photos=make_photos(folder / "photos", asked.images),
        scratch=folder / "scratch" / "threads",
        pictures=asked.images,
        side=224,
        epochs=1,
        step_s=0,
        is_augmented=True,
    )
    storage, manifest = ours.prepare(work)
    cv2.setNumThreads(1)
    urls = shard_urls(storage, manifest, ["train"])
    examples = read_examples(urls, work.side)
    print(f"load {os.getloadavg()[0]:.1f}, {asked.images} pictures, batches of {BATCH}, the usual augmentation")
    for name, make in {
        "streamed": lambda: batches.batches_from_shards(
            urls, batch=BATCH, image_size=work.side, recipe=usual.OURS, seed=0
        ),
        "decoded cache": lambda: batches.batches_from_memory(examples, batch=BATCH, recipe=usual.OURS, seed=0),
    }.items():
        compare(name, make, asked)


def compare(name: str, make: Callable[[], tf.data.Dataset], asked: argparse.Namespace) -> None:
    """Print a line a variant. Each has its stream to itself while it is measured: others' would make batches beside."""
    rates: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for number in range(asked.rounds):
        for variant in list(VARIANTS) if number % 2 == 0 else list(VARIANTS)[::-1]:
            stream = opened(make, VARIANTS[variant])
            images_per_s(stream, 10)
            rates[variant].append(images_per_s(stream, asked.batches))
    base = statistics.median(rates["the product's"])
    for variant, found in rates.items():
        rate = statistics.median(found)
        print(f"{name:14} {variant:16} {rate:6.0f} images/s  {rate / base:5.2f} of the product's")


if __name__ == "__main__":
    main()
