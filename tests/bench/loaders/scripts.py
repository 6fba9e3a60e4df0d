"""Rows that are no tf.data: memory, generator, PyDataset, ImageDataGenerator, process pools."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tests.bench.loaders import usual
from tests.bench.loaders.opencv import load_picture, read_pair, read_pairs
from tests.bench.loaders.photos import CLASSES
from tests.bench.loaders.work import BATCH, WORKERS, Work

Batch = tuple[NDArray[Any], Any]


@dataclass(kw_only=True)
class Fed:
    """What `fit` is given: `x` (and `y`), the steps an epoch where `x` has no end, and what is held open meanwhile.

    `late` makes `x` on the clock of the first epoch. `made` gets (began, ended) of batches, where that is known.
    """

    x: Any = None
    y: Any = None
    late: Callable[[], Any] | None = None
    steps: int | None = None
    batch: int | None = None
    close: AbstractContextManager[Any] = field(default_factory=nullcontext)
    made: list[tuple[float, float]] = field(default_factory=list)


def labelled_files(work: Work) -> list[tuple[str, int]]:
    """Every picture of the class folders with its class."""
    folder = work.photos / "classes"
    return [(str(path), label) for label, name in enumerate(CLASSES) for path in sorted((folder / name).iterdir())]


def memory(work: Work) -> Fed:
    """Everything decoded beforehand. Its augmentation is layers of the model: the simulated device's, free here."""
    files = labelled_files(work)
    x = np.stack([load_picture(path, work, None) for path, _ in files])
    return Fed(x=x, y=np.array([label for _, label in files], np.int32), batch=BATCH)


def generator(work: Work) -> Fed:
    """`yield x, y` for ever."""
    files = labelled_files(work)

    def batches() -> Iterator[Batch]:
        rng = np.random.default_rng(0)
        while True:
            order = rng.permutation(len(files))
            for start in range(0, len(files), BATCH):
                chosen = [files[row] for row in order[start : start + BATCH]]
                yield (
                    np.stack([load_picture(path, work, rng) for path, _ in chosen]),
                    np.array([label for _, label in chosen], np.int32),
                )

    return Fed(x=batches(), steps=work.steps)


class Files(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    """Batches by number, as the documentation of PyDataset has it."""

    def __init__(self, work: Work, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.work, self.files, self.epoch = work, labelled_files(work), 0
        np.random.default_rng(0).shuffle(self.files)

    def __len__(self) -> int:
        return math.ceil(len(self.files) / BATCH)

    def __getitem__(self, index: int) -> Batch:
        rng = np.random.default_rng((self.epoch, index))
        chosen = self.files[index * BATCH : (index + 1) * BATCH]
        pictures = np.stack([load_picture(path, self.work, rng) for path, _ in chosen])
        return pictures, np.array([label for _, label in chosen], np.int32)

    def on_epoch_end(self) -> None:
        """Other changes in the next epoch."""
        self.epoch += 1


def pydataset(work: Work) -> Fed:
    """With threads."""
    return Fed(x=Files(work, workers=WORKERS, use_multiprocessing=False))


def pydataset_processes(work: Work) -> Fed:
    """With processes; Keras forks a pool each epoch."""
    return Fed(x=Files(work, workers=WORKERS, use_multiprocessing=True))


def image_data_generator(work: Work) -> Fed:
    """As the usual tutorial has it; still there in Keras 3.15 as a legacy API. Its affine maps need SciPy."""
    made = tf.keras.preprocessing.image.ImageDataGenerator(
        rescale=1 / 255, **(usual.generator_arguments() if work.is_augmented else {})
    )
    flow = made.flow_from_directory(
        str(work.photos / "classes"),
        target_size=(work.side, work.side),
        batch_size=BATCH,
        class_mode="sparse",
        seed=0,
    )
    return Fed(x=flow)


def _pairs(work: Work) -> list[str]:
    return sorted(str(path) for path in Path(work.photos / "voc/JPEGImages").iterdir())


def _executor() -> ProcessPoolExecutor:
    # Not forked: TensorFlow's threads are running already.
    pool = ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"))
    list(pool.map(math.sqrt, range(4 * WORKERS)))
    return pool


def pool(work: Work) -> Fed:
    """Done right: a task is a batch, two a process are always under way."""
    executor, images = _executor(), _pairs(work)

    def tasks() -> Iterator[tuple[list[str], int]]:
        rng, number = np.random.default_rng(0), 0
        while True:
            order = rng.permutation(len(images))
            for start in range(0, len(images), BATCH):
                yield [images[row] for row in order[start : start + BATCH]], number
                number += 1

    def batches() -> Iterator[Batch]:
        under_way: deque[Future[Batch]] = deque()
        for chosen, number in tasks():
            under_way.append(executor.submit(read_pairs, chosen, work, number))
            if len(under_way) > 2 * WORKERS:
                yield under_way.popleft().result()

    return Fed(x=batches(), steps=work.steps, close=executor)


def pool_serial(work: Work) -> Fed:
    """The usual mistake: each `submit` waits for its `result` before the next."""
    executor, images = _executor(), _pairs(work)

    def batches() -> Iterator[Batch]:
        rng, number = np.random.default_rng(0), 0
        while True:
            order = rng.permutation(len(images))
            for start in range(0, len(images), BATCH):
                rows = []
                for row in order[start : start + BATCH]:
                    rows.append(executor.submit(read_pair, images[row], work, number).result())
                    number += 1
                boxes, labels = np.stack([row[1] for row in rows]), np.array([row[2] for row in rows], np.int32)
                yield np.stack([row[0] for row in rows]), (boxes, labels)

    return Fed(x=batches(), steps=work.steps, close=executor)
