"""`Detector`: the exported model on pictures, without TensorFlow.

Needs only numpy, OpenCV and LiteRT, so that it runs where the rest is not installed; the labels and the way a picture
is fitted into the square come from the model file itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.errors import ExportError
from shared.model.description import DESCRIPTION_FILE, ModelDescription, read_description
from shared.model.file import ModelFile
from shared.placement import PADDING_GRAY, Resize, place
from trainer.detections import Detections
from trainer.inference.decode import decode
from trainer.inference.lite_model import LiteModel, check_outputs, check_raw_outputs
from trainer.inference.trial_load import try_model
from trainer.pixels import Picture


def fit(image: Picture, size: int, resize: Resize) -> Picture:
    """A picture, resized as the shards store it.

    Args:
        image: uint8 [H, W, 3].
        size: Side of the model's square in pixels.
        resize: `stretch` or `letterbox`.

    Returns:
        uint8 [size, size, 3], channels as in `image`.
    """
    height, width = image.shape[:2]
    placed = place(width, height, size, resize)
    # If a side grows, INTER_AREA falls back to interpolation, which aliases, so only shrink in this step.
    narrow = (min(placed.width, width), min(placed.height, height))
    if narrow != (width, height):
        image = cv2.resize(image, narrow, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    resized = cv2.resize(image, (placed.width, placed.height), interpolation=cv2.INTER_LINEAR)
    square = np.full((size, size, 3), PADDING_GRAY, np.uint8)
    square[placed.top : placed.top + placed.height, placed.left : placed.left + placed.width] = resized
    return square


class Detector:
    """An exported `.tflite`, ready to run; it holds LiteRT's interpreter, so each thread needs its own."""

    def __init__(
        self,
        model: Path | bytes,
        threads: int = 1,
        *,
        file: str | None = None,
        is_ours: bool = False,
        is_apart: bool = False,
    ) -> None:
        """Load a model.

        Args:
            model: The file, or its bytes.
            threads: CPU threads of the interpreter.
            file: How errors name it; default: its path.
            is_ours: This program has just made the model and judges its detections: it is neither tried in a child
                process first, nor are its outputs checked.
            is_apart: This process exists only for this model and may die of it: it is not tried in a child first.

        Raises:
            ExportError: It is not a model of this project, is damaged, or crashes LiteRT.
        """
        self._file: Final = ModelFile.read(model, file)
        self._file.check_identifier()
        self._is_ours: Final = is_ours
        self.description: Final[ModelDescription] = read_description(self._file)
        size = self.description.image_size
        if not (is_ours or is_apart):
            try_model(self._file, size)
        self.network: Final = LiteModel(self._file, image_size=size, threads=threads)
        self._check_form()

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names; `labels[0]` is that of class id 1."""
        return self.description.labels

    def refusal(self, found: str, expected: str) -> ExportError:
        """The error for a model that does not fit its use: what was `found`, and what `expected`."""
        return self._file.refusal(found, expected)

    def detect(self, image_bgr: Picture) -> Detections:
        """Detections in a picture of any size, uint8 [H, W, 3], BGR; boxes are in its pixels and have an area."""
        size = self.description.image_size
        seen = self.detect_stored(fit(image_bgr, size, self.description.resize)[..., ::-1])
        height, width = image_bgr.shape[:2]
        placed = place(width, height, size, self.description.resize)
        border, scale, limits = (
            np.asarray(pair * 2, np.float32)
            for pair in ([placed.left, placed.top], [placed.scale_x, placed.scale_y], [width, height])
        )
        boxes = np.clip((seen.boxes - border) / scale, 0, limits).astype(np.float32)
        # Boxes in the gray bars beside a letterboxed picture have no area left and are dropped.
        return replace(seen, boxes=boxes)[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)]

    def detect_stored(self, picture_rgb: Picture) -> Detections:
        """Detections in a picture as a shard stores it, uint8 [H, W, 3], RGB; boxes in its pixels.

        Raises:
            ExportError: LiteRT cannot run the model, or its outputs cannot be detections of its labels.
        """
        raw = self.network.run(picture_rgb)
        if self.description.decoding is not None:
            return self.decode(raw)
        if not self._is_ours:
            check_outputs(raw, len(self.labels), self._file)
        count = int(raw["count"].reshape(-1)[0])
        boxes = raw["boxes"].reshape(-1, 4)[:count, [1, 0, 3, 2]] * np.float32(self.description.image_size)
        return Detections(
            boxes=np.clip(boxes, 0, self.description.image_size).astype(np.float32),
            class_ids=raw["classes"].reshape(-1)[:count].astype(np.int64) + 1,
            scores=raw["scores"].reshape(-1)[:count].astype(np.float32),
        )

    def decode(self, raw: Mapping[str, NDArray[np.float32]]) -> Detections:
        """The outputs of a model without suppression as detections, boxes in pixels of the stored picture.

        Raises:
            ExportError: The model has suppression inside, or its outputs are not finite.
        """
        how = self.description.decoding
        if how is None:
            raise self.refusal("suppression is inside it", "a model without")
        if not self._is_ours:
            check_raw_outputs(raw, self._file)
        return decode(raw["boxes"][0], raw["scores"][0], how, self.description.image_size)

    def _check_form(self) -> None:
        """Refuse a network whose form is not what the file's description says."""
        how, network = self.description.decoding, self.network
        if how is None and network.is_raw:
            found = f"its suppression is outside, and {DESCRIPTION_FILE} does not say how its outputs are decoded"
            raise self.refusal(found, "a decoding in it")
        if how is not None and not network.is_raw:
            raise self.refusal(f"{DESCRIPTION_FILE} has a decoding, but suppression is inside it", "one or the other")
        if how is not None:
            wanted = (how.cells(self.description.image_size), len(self.labels))
            if network.raw_shape != wanted:
                (cells, classes), (boxes, labels) = network.raw_shape, wanted
                raise self.refusal(f"its outputs are {cells} boxes of {classes} classes", f"{boxes} of {labels}")

    def detect_batch(self, pictures_rgb: NDArray[np.uint8]) -> list[Detections]:
        """As `detect_stored`, for pictures [B, H, W, 3], one after another."""
        return [self.detect_stored(picture) for picture in pictures_rgb]
