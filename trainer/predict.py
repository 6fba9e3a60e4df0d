"""The exported model on pictures: `Detector`, free of TensorFlow.

Stands at the end of the route. Needs numpy, OpenCV and LiteRT only, so that it runs where the rest is not installed;
labels and the way a picture is fitted into the square come from the model file itself.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from shared.errors import ExportError
from trainer.description import PIXEL_MEAN, PIXEL_STD, ModelDescription, read_description
from trainer.detections import Detections

Picture = NDArray[np.uint8]

# Of the letterbox's borders, as the worker writes them into the shards.
BORDER_GRAY: Final = 114

_OUTPUTS: Final = ("boxes", "classes", "scores", "count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a picture lies in the model's square: its size there and the border left of and above it, in pixels."""

    width: int
    height: int
    left: int
    top: int


def place(width: int, height: int, size: int, resize: str) -> Placement:
    """Where a picture of `width` x `height` px goes in a square of `size` px, by `stretch` or `letterbox`."""
    if resize == "stretch":
        return Placement(width=size, height=size, left=0, top=0)
    scale = size / max(width, height)
    fitted_width, fitted_height = (max(1, round(side * scale)) for side in (width, height))
    return Placement(
        width=fitted_width,
        height=fitted_height,
        left=(size - fitted_width) // 2,
        top=(size - fitted_height) // 2,
    )


def fit(image: Picture, size: int, resize: str) -> Picture:
    """A picture as the shards store it.

    Args:
        image: uint8 [H, W, 3].
        size: Side of the model's square in pixels.
        resize: `stretch` or `letterbox`.

    Returns:
        uint8 [size, size, 3], channels as in `image`.
    """
    height, width = image.shape[:2]
    placed = place(width, height, size, resize)
    shrinks = placed.width < width or placed.height < height
    resized = cv2.resize(
        image, (placed.width, placed.height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    )
    square = np.full((size, size, 3), BORDER_GRAY, np.uint8)
    square[placed.top : placed.top + placed.height, placed.left : placed.left + placed.width] = resized
    return square


class Detector:
    """An exported `.tflite` ready to run; holds LiteRT's interpreter, so one per thread."""

    def __init__(self, model: Path | bytes, threads: int = 1) -> None:
        """Load a model.

        Args:
            model: The file, or its bytes.
            threads: CPU threads of the interpreter.

        Raises:
            ExportError: It is no model of this project, or its outputs have other names.
        """
        self.description: Final[ModelDescription] = read_description(model)
        source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
        self._interpreter: Final[Any] = Interpreter(num_threads=threads, **source)
        self._interpreter.allocate_tensors()
        self._input: Final[dict[str, Any]] = self._interpreter.get_input_details()[0]
        # By name: the order of outputs changes between releases of the converter.
        details = self._interpreter.get_signature_runner().get_output_details()
        if set(details) != set(_OUTPUTS):
            raise ExportError(f"{model if isinstance(model, Path) else 'model'}: outputs {sorted(details)}")
        self._outputs: Final[dict[str, int]] = {name: int(details[name]["index"]) for name in _OUTPUTS}

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names; `labels[0]` is class id 1."""
        return self.description.labels

    def detect(self, image_bgr: Picture) -> Detections:
        """Detections in a picture of any size, uint8 [H, W, 3], BGR; boxes in its pixels."""
        size = self.description.image_size
        seen = self.detect_stored(fit(image_bgr, size, self.description.resize)[..., ::-1])
        height, width = image_bgr.shape[:2]
        placed = place(width, height, size, self.description.resize)
        border = np.asarray([placed.left, placed.top] * 2, np.float32)
        scale = np.asarray([width / placed.width, height / placed.height] * 2, np.float32)
        limits = np.asarray([width, height] * 2, np.float32)
        boxes = np.clip((seen.boxes - border) * scale, 0, limits).astype(np.float32)
        return Detections(boxes=boxes, class_ids=seen.class_ids, scores=seen.scores)

    def detect_stored(self, picture_rgb: Picture) -> Detections:
        """Detections in a picture as a shard stores it, uint8 [H, W, 3], RGB; boxes in its pixels."""
        raw = self.run(picture_rgb)
        count = int(raw["count"].reshape(-1)[0])
        boxes = raw["boxes"].reshape(-1, 4)[:count, [1, 0, 3, 2]] * np.float32(self.description.image_size)
        return Detections(
            boxes=np.clip(boxes, 0, self.description.image_size).astype(np.float32),
            class_ids=raw["classes"].reshape(-1)[:count].astype(np.int64) + 1,
            scores=raw["scores"].reshape(-1)[:count].astype(np.float32),
        )

    def run(self, picture_rgb: Picture) -> dict[str, NDArray[np.float32]]:
        """The four outputs by name, as the model gives them, for one picture of its size."""
        self.feed(picture_rgb)
        self.invoke()
        return {name: self._interpreter.get_tensor(index) for name, index in self._outputs.items()}

    def feed(self, picture_rgb: Picture) -> None:
        """Put one picture of the model's size, uint8 [H, W, 3], RGB, into the input tensor."""
        batch: NDArray[Any] = picture_rgb[None]
        if self._input["dtype"] != np.uint8:
            batch = ((batch.astype(np.float32) - PIXEL_MEAN) / PIXEL_STD).astype(np.float32)
        self._interpreter.set_tensor(self._input["index"], batch)

    def invoke(self) -> None:
        """Run the network on what was fed; what latency is measured of."""
        self._interpreter.invoke()
