"""A model that takes batches as `fit` feeds them and is busy with each for a stated time: a wait that costs no
processor, as an accelerator's step does; or, beside it, a real step on the CPU. Notes when it asked, began and ended.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import keras
import psutil
import tensorflow as tf

from tests.bench.loaders.photos import CLASSES


class Accelerator(keras.Model):  # type: ignore[misc]  # keras has no types
    """Consumes batches; `step` is what it does with pictures uint8 or float [B, H, W, 3] and labels int [B]."""

    def __init__(self, step: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self._step_of = step
        self.started_s = time.perf_counter()
        self.noted: list[tuple[float, float, float]] = []
        self.pictures = 0
        self.built = True
        self.compile()

    def make_train_function(self, force: bool = False) -> None:
        """What `fit` calls for each batch, with the iterator of its adapter."""
        self.train_function = self._take

    def _take(self, iterator: Any) -> dict[str, float]:
        asked_s = time.perf_counter()
        batch = next(iterator)
        began_s = time.perf_counter()
        pictures, labels = parts_of(batch)
        self._step_of(pictures, labels)
        ended_s = time.perf_counter()
        self.pictures += int(pictures.shape[0])
        first = self.started_s
        self.noted.append((asked_s - first, began_s - first, ended_s - first))
        return {"loss": 0.0}


def parts_of(batch: Any) -> tuple[Any, Any]:
    """Pictures and one label a picture, of (x, y), of (x, (boxes, labels)) or of our dictionary."""
    if isinstance(batch, dict):
        return batch["pictures"], batch["labels"][:, 0]
    pictures, labels = batch
    if isinstance(labels, tuple | list):
        labels = labels[1]
    return pictures, labels


def waiting(step_s: float) -> Callable[[Any, Any], None]:
    """A step that waits."""
    return lambda pictures, labels: time.sleep(step_s)


def computing(side: int) -> Callable[[Any, Any], None]:
    """A real step: transfer learning on a frozen MobileNetV2 (0.35), the head learns."""
    backbone = keras.applications.MobileNetV2(
        (side, side, 3), alpha=0.35, include_top=False, weights=None, pooling="avg"
    )
    head = keras.layers.Dense(len(CLASSES))
    head.build((None, backbone.output_shape[-1]))
    optimizer = keras.optimizers.Adam()
    optimizer.build(head.trainable_variables)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def learn(pictures: Any, labels: Any) -> Any:
        scale = 1 / 127.5 if pictures.dtype == tf.uint8 else 2.0
        features = backbone(tf.cast(pictures, tf.float32) * scale - 1.0, training=False)
        with tf.GradientTape() as tape:
            loss = keras.losses.sparse_categorical_crossentropy(labels, head(features), from_logits=True)
            loss = tf.reduce_mean(loss)
        optimizer.apply(tape.gradient(loss, head.trainable_variables), head.trainable_variables)
        return loss

    def step(pictures: Any, labels: Any) -> None:
        learn(pictures, tf.maximum(tf.cast(labels, tf.int32), 0)).numpy()

    return step


class Marks(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Wall and processor seconds of each epoch, of this process and all below it."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_s = [time.perf_counter()]
        self.cpu_s = [tree_cpu_s()]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras calls it."""
        self.wall_s.append(time.perf_counter())
        self.cpu_s.append(tree_cpu_s())


def tree_cpu_s() -> float:
    """Processor seconds of this process, of its ended children and of its living ones."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total
