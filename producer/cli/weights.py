"""A file of weights -> a key in the store that every trainer can read."""

import hashlib
from pathlib import Path
from typing import Final

from producer.cli.keras_file import MOST_KERAS_BYTES, read_network
from shared.errors import OptionError
from shared.specs.training import TrainingOptions
from shared.storage import Storage

_HDF5: Final = b"\x89HDF\r\n\x1a\n"
# The last layer of each backbone that is used, and its channels by model size, which tell the backbone's width.
_LAST_LAYERS: Final = {
    "mobilenet_v2": ("block_16_project", {"nano": 112, "small": 160, "medium": 320}),
    "mobilenet_v3_small": ("expanded_conv_10_project", {"nano": 72, "small": 96, "medium": 96}),
}
# Layers that show that the network is a whole classifier, or a detector of ours.
_ON_TOP: Final = ("predictions", "logits", "boxes_8_out")


def stored_weights(training: TrainingOptions, storage: Storage) -> str:
    """`none` and `imagenet` as they are; for a file, its key in the store, where it is copied for the trainers.

    Raises:
        OptionError: There is no such file, or it is not of the backbone that was asked for.
    """
    weights = training.weights
    if weights in ("none", "imagenet"):
        return weights
    shown, path = f"--weights {weights}", Path(weights)
    if not path.is_file():
        raise OptionError(f"{shown}: expected none, imagenet or a file, found no such file")
    if not path.name.endswith((".h5", ".keras")):
        raise OptionError(f"{shown}: expected a Keras weights file (.h5, .weights.h5 or .keras)")
    content = read_bounded(path, shown)
    if path.name.endswith(".keras"):
        _check_backbone(content, training, shown)
    elif not content.startswith(_HDF5):
        raise OptionError(f"{shown}: expected HDF5, found a file that begins with {content[:8]!r}")
    return kept(content, path.name, storage)


def read_bounded(path: Path, shown: str) -> bytes:
    """A file's content.

    Raises:
        OptionError: It is larger than `MOST_KERAS_BYTES`.
    """
    if path.stat().st_size > MOST_KERAS_BYTES:
        raise OptionError(f"{shown}: {path.stat().st_size:,} bytes, expected at most {MOST_KERAS_BYTES:,}")
    return path.read_bytes()


def kept(content: bytes, name: str, storage: Storage) -> str:
    """Write a file into the store, named by its digest, and return its key; `name` may have that digest already.

    A file that is there already is written again, to make it new: `prune` removes files older than a day that no job
    uses, and the job that asks for this one comes later.
    """
    digest = hashlib.sha256(content).hexdigest()[:16]
    storage.make_root()
    key = f"weights/{digest}-{name.removeprefix(f'{digest}-')}"
    storage.write(key, content)
    return key


def _check_backbone(content: bytes, training: TrainingOptions, shown: str) -> None:
    """Refuse a `.keras` whose network is not the asked backbone at this size, without its classifier."""
    network, known = read_network(content, shown), _LAST_LAYERS.get(training.backbone)
    if known is None:
        return
    layer, channels = known
    expected = f"{training.backbone} without top, whose {layer} has {channels[training.model]} channels"
    on_top = next((name for name in _ON_TOP if name in network.layers), None)
    if on_top is not None:
        hint = "; --from goes on from a detector" if on_top == "boxes_8_out" else ""
        raise OptionError(f"{shown}: expected {expected}, found {network} with a layer {on_top} on top{hint}")
    found = network.filters(layer)
    if found != channels[training.model]:
        there = f"{found} ({training.model} needs another width)" if found else "no such layer"
        raise OptionError(f"{shown}: expected {expected}, found {network}: {there}")
