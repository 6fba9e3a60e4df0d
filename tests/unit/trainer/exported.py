"""A tiny network with lively outputs, exported once a session: weights are random, its detections are not constant."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from shared.model.description import ModelDescription
from shared.specs.training import Backbone
from trainer.data.examples import ShardPicture
from trainer.network.detector import build_model
from trainer.tflite.convert import FORMS, RAW, TrainedModel, export_forms

SIZE = 64
LABELS = ("Ähre", "box", "cross")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """`forms` with suppression inside, `raw` the same without, both by form."""

    model: TrainedModel
    forms: dict[str, bytes]
    raw: dict[str, bytes]
    pictures: tuple[ShardPicture, ...]


def stored_pictures(count: int, seed: int = 0) -> tuple[ShardPicture, ...]:
    """Smooth noise: pictures that differ from each other and hold no 0 and no 255 of themselves."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(30, 220, (count, 8, 8, 3))
    pixels = coarse.repeat(SIZE // 8, axis=1).repeat(SIZE // 8, axis=2).astype(np.uint8)
    return tuple(ShardPicture(image_id=i, file_name=f"{i}.jpg", rgb=rgb) for i, rgb in enumerate(pixels, start=1))


def lively_network(backbone: Backbone = "conv") -> Any:
    """Random weights and statistics, scores of every class somewhere above 0.3."""
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(3)
    network = build_model(len(LABELS), SIZE, "nano", backbone=backbone)
    for variable in network.variables:
        if variable.name in {"beta", "moving_mean"}:
            variable.assign(rng.normal(0, 0.1, variable.shape))
        if variable.name in {"gamma", "moving_variance"}:
            variable.assign(rng.uniform(0.8, 1.2, variable.shape))
    for layer in network.layers:
        if layer.name.startswith("scores") and layer.name.endswith("_out"):
            kernel, bias = layer.get_weights()
            layer.set_weights([kernel * 40, bias + 3])
        if layer.name.startswith("boxes") and layer.name.endswith("_out"):
            kernel, bias = layer.get_weights()
            layer.set_weights([kernel * 20, bias])
    return network


def make_exported(backbone: Backbone = "conv") -> Exported:
    pictures = stored_pictures(8)
    description = ModelDescription(
        name="tiny",
        version="1.2.3",
        licence="Apache-2.0",
        labels=LABELS,
        image_size=SIZE,
        resize="letterbox",
        data_digest="ab" * 32,
    )
    model = TrainedModel(keras_model=lively_network(backbone), description=description)
    made = export_forms(model, lambda: (picture.rgb for picture in pictures), lambda _: None, is_raw=True)
    return Exported(
        model=model,
        forms={form: made[form] for form in FORMS},
        raw={form: made[f"{form}{RAW}"] for form in FORMS},
        pictures=pictures,
    )


def as_batch(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (rgb[None].astype(np.float32) - 127.5) / 127.5
