"""A `.keras` file from anywhere -> what its network is, read only from its description; no code of it is run.

The file is a zip; only the description is unpacked, and only up to a limit.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.errors import OptionError
from shared.model.file import ZIP_ERRORS, unpacked_member

# The largest file made here, `medium` with EfficientNet-Lite2, has 21 MB; the largest of Keras's applications, 350 MB.
MOST_KERAS_BYTES: Final = 512 * 2**20
# The description of our networks has at most 210 kB.
_MOST_CONFIG_BYTES: Final = 8 * 2**20
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"

_DETECTOR: Final = re.compile(r"detector_(nano|small|medium)")
# The first layer of each backbone.
_BACKBONES: Final = {
    "stem": "conv",
    "lite0_stem": "efficientnet_lite0",
    "lite2_stem": "efficientnet_lite2",
    "Conv1": "mobilenet_v2",
    "conv": "mobilenet_v3_small",
}
# A layer that the whole EfficientNet-Lite0 has, but the short one has not.
_LITE0_LAST: Final = "lite0_block15_project"


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasNetwork:
    """The name of a network, and the settings of its layers by their names, in the file's order."""

    name: str
    layers: Mapping[str, Mapping[str, Any]]

    def filters(self, layer: str) -> int | None:
        """The output channels of the convolution `layer`; None if there is no such layer."""
        found = self.layers.get(layer, {}).get("filters")
        return found if type(found) is int else None

    def __str__(self) -> str:
        """In words, for an error message."""
        return f"a network {self.name[:60]!r} of {len(self.layers)} layers"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedDetector:
    """A detector of this project: its backbone, its size, the side of its input in pixels, its number of classes."""

    backbone: str
    model: str
    image_size: int
    classes: int


def read_network(content: bytes, shown: str) -> KerasNetwork:
    """What a `.keras` file says of its network; `shown` is how error messages name the file.

    Raises:
        OptionError: It is not such a file, or is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.getinfo(_WEIGHTS)
            described = json.loads(unpacked_member(archive, _CONFIG, _MOST_CONFIG_BYTES))
        settings = described["config"]
        layers = {layer["config"]["name"]: dict(layer["config"]) for layer in settings["layers"]}
        return KerasNetwork(name=str(settings["name"]), layers=layers)
    except (*ZIP_ERRORS, TypeError, RecursionError) as error:
        # Not the text of a KeyError, in which the library speaks of names inside the archive.
        reason = "it has no weights in it" if isinstance(error, KeyError) else str(error)[:80] or type(error).__name__
        beside = "; take the model.keras beside it" if shown.endswith(".tflite") else ""
        raise OptionError(
            f"{shown}: expected a .keras file of a whole network, found none ({reason}){beside}"
        ) from error


def as_detector(network: KerasNetwork, shown: str) -> TrainedDetector:
    """The detector that a network is.

    Raises:
        OptionError: It is another network.
    """
    name = _DETECTOR.fullmatch(network.name)
    backbone = _BACKBONES.get(next((layer for layer in network.layers if layer != "image"), ""))
    if backbone == "efficientnet_lite0" and _LITE0_LAST not in network.layers:
        backbone = "efficientnet_lite0_short"
    shape = network.layers.get("image", {}).get("batch_shape")
    classes = {network.filters(f"scores_{stride}_out") for stride in (8, 16, 32)}
    boxes = {network.filters(f"boxes_{stride}_out") for stride in (8, 16, 32)}
    side = shape[1] if isinstance(shape, list) and len(shape) == 4 else None
    (count, *others) = classes
    if name is None or backbone is None or type(side) is not int or count is None or others or boxes != {4}:
        raise OptionError(f"{shown}: expected a detector that voc2tflite trained (RUN's model.keras), found {network}")
    return TrainedDetector(backbone=backbone, model=name[1], image_size=side, classes=count)
