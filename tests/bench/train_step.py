"""A whole training step (input, augmentation, assignment, loss, optimizer, EMA) against bare forward + backward.

Both of the same network on batches of the same size in one process, order-balanced (A B B A …), medians of processor
and wall time; then where the difference goes. Run: `python tests/bench/train_step.py [--model small] [--rounds 12]`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.specs.augmentation import Augmentation
from tests.unit.trainer.pictures import drawn_examples
from trainer.data.augment import augment_batch
from trainer.data.batches import batches_from_memory
from trainer.network.detector import build_model, is_backbone, make_priors
from trainer.network.loss import loss_sums
from trainer.pixels import normalize
from trainer.training.schedule import PUBLISHED_RATE
from trainer.training.train_step import Learner, in_precision

BATCH = 8
CLASSES = 2
# Whole step over bare forward and backward, in processor time.
MOST = 1.3


def bare_step(network: keras.Model, learnt: list[Any], side: int) -> Callable[[], Any]:
    """Forward and backward on pre-made tensors: a weighted sum of the outputs, its gradient by all weights `learnt`."""
    pictures = tf.random.stateless_uniform((BATCH, side, side, 3), (0, 0), -1.0, 1.0)
    weights = {key: tf.random.stateless_normal(value.shape, (0, 1)) for key, value in network(pictures).items()}

    def body() -> Any:
        with tf.GradientTape() as tape:
            outputs = network(pictures, training=True)
            total = tf.add_n([tf.reduce_sum(outputs[key] * weights[key]) for key in outputs])
        return tf.add_n([tf.reduce_sum(part) for part in tape.gradient(total, learnt)])

    run = tf.function(body)
    return lambda: run().numpy()


def loss_and_gradient(network: keras.Model, batch: dict[str, Any], priors: Any) -> Callable[[], Any]:
    """The loss of fixed outputs and its gradient by them."""
    outputs = {
        key: tf.constant(value) for key, value in network(normalize(tf.cast(batch["pictures"], tf.float32))).items()
    }

    def body() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            sums = loss_sums(outputs, true_boxes=batch["boxes"], true_labels=batch["labels"], priors=priors)
            total = sums.score + sums.box
        return tape.gradient(total, outputs)["boxes"]

    run = tf.function(body)
    return lambda: run().numpy()


def measure(parts: dict[str, Callable[[], Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median (processor, wall) milliseconds of each part, run in turns in both orders."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in parts}
    for number in range(-2, rounds):
        for name in list(parts) if number % 2 else list(parts)[::-1]:
            processor_s, wall_s = time.process_time(), time.perf_counter()
            parts[name]()
            spent = (1e3 * (time.process_time() - processor_s), 1e3 * (time.perf_counter() - wall_s))
            if number >= 0:
                times[name].append(spent)
    return {
        name: (statistics.median(a for a, _ in spent), statistics.median(b for _, b in spent))
        for name, spent in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="small", choices=["nano", "small", "medium"])
    parser.add_argument("--backbone", default="conv", choices=["conv", "efficientnet_lite0"])
    parser.add_argument("--frozen", action="store_true", help="The first phase of a published backbone.")
    parser.add_argument("--precision", default="float32", choices=["float32", "mixed_bfloat16"])
    parser.add_argument("--side", default=320, type=int)
    parser.add_argument("--rounds", default=12, type=int)
    asked = parser.parse_args()
    cv2.setNumThreads(1)
    examples, priors = drawn_examples(64, side=asked.side, most=16), make_priors(asked.side)
    stream = batches_from_memory(examples, batch=BATCH, recipe=Augmentation(), seed=0)
    batches = iter(stream)
    strategy = tf.distribute.get_strategy()
    weights = "none" if asked.backbone == "conv" else "imagenet"
    network = partial(build_model, CLASSES, asked.side, asked.model, backbone=asked.backbone, weights=weights)
    build = partial(in_precision, asked.precision, network)
    learner = Learner(build, priors, strategy, batch_spec=stream.element_spec)
    learnt = [weight for weight in learner.model.trainable_variables if not (asked.frozen and is_backbone(weight.path))]
    share = 0.0 if asked.frozen else 1.0 if asked.backbone == "conv" else PUBLISHED_RATE
    batch = next(batches)
    found = measure(
        {
            "bare forward + backward": bare_step(learner.model, learnt, asked.side),
            "whole step": lambda: learner.step(next(batches), rate=0.0, number=1, published_share=share),
            "of it: augmentation": lambda: augment_batch(
                examples, np.arange(BATCH), recipe=Augmentation(), rng=np.random.default_rng(0)
            ),
            "of it: assignment, loss, their gradient": loss_and_gradient(learner.model, batch, priors),
        },
        asked.rounds,
    )
    for name, (processor_ms, wall_ms) in found.items():
        print(f"{name:42}{processor_ms:9.1f} ms processor{wall_ms:9.1f} ms wall")
    bare, whole = found["bare forward + backward"], found["whole step"]
    word = "ok  " if whole[0] <= MOST * bare[0] else "MISS"
    print(f"{word}\tratio: {whole[0] / bare[0]:.2f} processor, {whole[1] / bare[1]:.2f} wall (at most {MOST:g})")


if __name__ == "__main__":
    main()
