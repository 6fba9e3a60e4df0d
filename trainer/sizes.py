"""A size and a backbone -> what it costs: parameters, multiply-adds, bytes and milliseconds; what `sizes` prints."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final

import keras
import numpy as np

from shared import __version__
from shared.model.description import ModelDescription
from shared.specs.training import Backbone
from shared.text import counted
from trainer.evaluation.latency import median_ms
from trainer.inference.detector import Detector
from trainer.network.backbone import Size
from trainer.network.detector import build_model
from trainer.tflite.convert import RAW, TrainedModel, export_forms
from trainer.tflite.operator_times import Details, details

# How many rounds are measured; each invokes both forms several times.
_ROUNDS: Final = 10
_CALIBRATION: Final = 4

_CONVOLUTIONS: Final = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a picture costs in a network: `macs` are multiply-adds, `*_ms` are on one thread of this machine, with NMS.

    `int8` is the file itself, `int8_raw` the file without suppression.
    """

    backbone: Backbone
    model: Size
    parameters: int
    macs: int
    int8_bytes: int
    float32_ms: float
    int8_ms: float
    int8: bytes
    int8_raw: bytes


def costs(backbones: Iterable[Backbone], sizes: Iterable[Size], *, image_size: int, classes: int) -> Iterable[Cost]:
    """The cost of each size of each backbone with fresh weights, one after another.

    Args:
        backbones: Ours (`conv`) or published ones.
        sizes: Sizes of the detector.
        image_size: The side of the pictures in pixels.
        classes: The number of classes without background.
    """
    return (_cost(*chosen, image_size, classes) for chosen in product(backbones, sizes))


def _cost(backbone: Backbone, size: Size, image_size: int, classes: int) -> Cost:
    network = build_model(classes, image_size, size, backbone=backbone)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (_CALIBRATION, image_size, image_size, 3), np.uint8)
    files = export_forms(
        TrainedModel(keras_model=network, description=_description(size, image_size, classes)),
        lambda: iter(pictures),
        lambda _: None,
        ("float32", "int8"),
        is_raw=True,
    )
    detectors = {form: Detector(files[form], is_ours=True) for form in ("float32", "int8")}
    times = median_ms(detectors, pictures[0], _ROUNDS)
    return Cost(
        backbone=backbone,
        model=size,
        parameters=int(network.count_params()),
        macs=multiply_adds(network),
        int8_bytes=len(files["int8"]),
        float32_ms=times["float32"],
        int8_ms=times["int8"],
        int8=files["int8"],
        int8_raw=files[f"int8{RAW}"],
    )


def detail_of(model: bytes, image_size: int) -> Details:
    """Where a file's time and memory go, measured on a picture of noise."""
    return details(model, np.random.default_rng(0).integers(0, 256, (image_size, image_size, 3), np.uint8))


def multiply_adds(network: keras.Model) -> int:
    """Multiply-adds of the convolutions of `network` for one picture; the rest is below 2 % of them."""
    # A kernel [h, w, in, out] (depthwise [h, w, in, 1]) is applied once per cell of the output.
    return sum(
        math.prod(layer.output.shape[1:3]) * math.prod(layer.kernel.shape)
        for layer in network.layers
        if isinstance(layer, _CONVOLUTIONS)
    )


def _description(size: str, image_size: int, classes: int) -> ModelDescription:
    return ModelDescription(
        name=f"untrained-{size}",
        version=__version__,
        licence="Apache-2.0",
        labels=tuple(f"class{number}" for number in range(1, classes + 1)),
        image_size=image_size,
        resize="stretch",
        data_digest="-",
    )


def machine() -> str:
    """The processor's name, if the system tells it, and the number of cores."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as facts:
            names = [line.partition(":")[2].strip() for line in facts if line.startswith("model name")]
    except OSError:
        names = []
    return f"{names[0] if names else 'unknown processor'}, {counted(os.cpu_count() or 1, 'core')}"
