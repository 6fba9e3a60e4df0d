"""Our training from shards against Keras's own `fit` of the same network on pre-made tensors, under MirroredStrategy.

`python -m tests.bench.loaders.against_fit [--model small] [--replicas 1] [--rounds 6]`: both take turns in one
process, images/s once warm, medians. `fit` gets tensors that wait in memory, unchanged; ours streams shards (or keeps
them decoded), augments, and averages its weights besides. Asked for: ours at least 0.95 of `fit`.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import cv2
import keras
import numpy as np
import tensorflow as tf

from shared.specs.augmentation import Augmentation
from tests.bench.loaders import ours
from tests.bench.loaders.photos import CLASSES, make_photos
from tests.bench.loaders.work import Work
from trainer.data.batches import batches_from_memory, batches_from_shards
from trainer.data.examples import read_examples, shard_urls
from trainer.network.detector import build_model, make_priors
from trainer.network.loss import BOX_WEIGHT, loss_sums
from trainer.pixels import normalize
from trainer.training.strategy import make_strategy
from trainer.training.train_step import Learner

TARGET = 0.95


class Ordinary(keras.Model):  # type: ignore[misc]  # keras has no types
    """The same network and loss, trained by Keras."""

    def __init__(self, network: keras.Model, priors: Any, replicas: int) -> None:
        super().__init__()
        self.network, self.priors, self.replicas = network, priors, replicas
        self.built = True

    def call(self, pictures: Any, training: bool = False) -> Any:
        """Keras calls it."""
        return self.network(normalize(tf.cast(pictures, tf.float32)), training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Keras calls it, on each replica."""
        sums = loss_sums(y_pred, true_boxes=y["boxes"], true_labels=y["labels"], priors=self.priors)
        return (sums.score + BOX_WEIGHT * sums.box) / tf.maximum(sums.normalizer, 1.0) / self.replicas


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small", choices=["nano", "small", "medium"])
    parser.add_argument("--size", default=320, type=int)
    parser.add_argument("--batch", default=8, type=int, help="a replica")
    parser.add_argument("--replicas", default=1, type=int)
    parser.add_argument("--images", default=128, type=int)
    parser.add_argument("--rounds", default=6, type=int)
    parser.add_argument("--steps", default=8, type=int, help="of a round")
    parser.add_argument("--folder", default=Path("out/bench-loaders"), type=Path)
    return parser.parse_args()


def fit_steps(asked: argparse.Namespace, batch: dict[str, Any], strategy: tf.distribute.Strategy) -> Callable[[], Any]:
    """`fit` for a round's steps, on the tensors of one batch again and again."""
    count = asked.batch * asked.replicas
    with strategy.scope():
        model = Ordinary(build_model(len(CLASSES), asked.size, asked.model), make_priors(asked.size), asked.replicas)
        # Compiled by XLA, as Keras would choose by itself, `fit` is slower on a CPU: the limit is the quicker one.
        model.compile(optimizer=keras.optimizers.AdamW(1e-4, clipnorm=10.0), jit_compile=False)
    x, y = batch["pictures"], {"boxes": batch["boxes"], "labels": batch["labels"]}
    many = tf.data.Dataset.from_tensors((x, y)).repeat(asked.steps).prefetch(2)
    assert len(x) == count
    return lambda: model.fit(many, epochs=1, shuffle=False, verbose=0)


def our_steps(
    asked: argparse.Namespace, stream: tf.data.Dataset, strategy: tf.distribute.Strategy
) -> Callable[[], Any]:
    """Our loop for a round's steps."""
    spread = strategy.experimental_distribute_dataset(stream) if asked.replicas > 1 else stream
    learner = Learner(
        lambda: build_model(len(CLASSES), asked.size, asked.model),
        make_priors(asked.size),
        strategy,
        spread.element_spec,
    )
    batches = iter(spread)

    def steps() -> None:
        for number in range(asked.steps):
            learner.step(next(batches), rate=1e-4, number=number)

    return steps


def main() -> None:
    """Measure and print."""
    asked = arguments()
    cv2.setNumThreads(1)
    strategy = make_strategy(asked.replicas)
    batch = asked.batch * asked.replicas
    with tempfile.TemporaryDirectory() as scratch:
        photos = make_photos(asked.folder.resolve() / "photos", asked.images)
        work = Work(
            photos=photos,
            scratch=Path(scratch),
            pictures=asked.images,
            side=asked.size,
            epochs=1,
            step_s=0,
            is_augmented=True,
        )
        urls = shard_urls(*ours.prepare(work), ["train"])
        examples = read_examples(urls, asked.size)
        cached = batches_from_memory(examples, batch=batch, recipe=Augmentation(), seed=0)
        streamed = batches_from_shards(urls, batch=batch, image_size=asked.size, recipe=Augmentation(), seed=0)
        made = next(iter(cached.as_numpy_iterator()))
        rows = {
            "keras fit, pre-made tensors": fit_steps(asked, made, strategy),
            "ours, decoded cache": our_steps(asked, cached, strategy),
            "ours, streamed from shards": our_steps(asked, streamed, strategy),
        }
        report(measure(rows, asked.rounds), asked.steps * batch, asked)


def measure(rows: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each row's rounds, after one that traces; rows take turns in both directions."""
    took: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(-1, rounds):
        for name in list(rows) if number % 2 else list(rows)[::-1]:
            began_s = time.perf_counter()
            rows[name]()
            if number >= 0:
                took[name].append(time.perf_counter() - began_s)
    return took


def report(took: dict[str, list[float]], pictures: int, asked: argparse.Namespace) -> None:
    """Images/s and the ratio to `fit`, of rounds next to each other."""
    limit = took["keras fit, pre-made tensors"]
    print(f"{asked.model}, {asked.size} px, batch {asked.batch} x {asked.replicas} under MirroredStrategy, images/s")
    for name, seconds in took.items():
        ratio = statistics.median(theirs / own for theirs, own in zip(limit, seconds, strict=True))
        mark = "" if name.startswith("keras") else "  holds" if ratio >= TARGET else "  MISSES"
        print(f"{name:32}{pictures / np.median(seconds):8.1f}{ratio:8.2f}{mark}")


if __name__ == "__main__":
    main()
