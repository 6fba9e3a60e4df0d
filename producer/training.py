"""The training options of `submit`, and a file of weights → a key of the store that every trainer can read."""

import hashlib
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from shared.errors import PlanError
from shared.job import Augmentation
from shared.storage import Storage

_TRAINING: Final = "Training"
_CHANGES: Final = "Changes to training pictures"

ModelOption = Annotated[
    Literal["nano", "small", "medium"],
    typer.Option(help="nano, small or medium; see `python -m trainer sizes`.", rich_help_panel=_TRAINING),
]
BackboneOption = Annotated[
    Literal["conv", "mobilenet_v2", "mobilenet_v3_small"],
    typer.Option(help="Ours (conv), or a published one for transfer learning.", rich_help_panel=_TRAINING),
]
WeightsOption = Annotated[
    str,
    typer.Option(
        help="Of a published backbone: none, imagenet (downloaded) or a FILE without top.", rich_help_panel=_TRAINING
    ),
]
EpochsOption = Annotated[
    int | None, typer.Option(help="Default: chosen by the size of the set.", rich_help_panel=_TRAINING)
]
MinutesOption = Annotated[
    float, typer.Option(min=0, help="Bound of the training loop; 0: none.", rich_help_panel=_TRAINING)
]
BatchOption = Annotated[int, typer.Option(help="Pictures a step and replica.", rich_help_panel=_TRAINING)]
RateOption = Annotated[
    float | None,
    typer.Option(help="Peak rate; default: by the batch over all replicas.", rich_help_panel=_TRAINING),
]
PrecisionOption = Annotated[
    Literal["float32", "mixed_float16", "mixed_bfloat16"],
    typer.Option(help="Mixed ones gain on GPUs and on CPUs with bfloat16 units.", rich_help_panel=_TRAINING),
]
FinalOption = Annotated[bool, typer.Option("--final", help="Train on train + val.", rich_help_panel=_TRAINING)]
StopOption = Annotated[
    float | None, typer.Option(help="Stop at this mAP (0.5 to 0.95) on val, in (0, 1].", rich_help_panel=_TRAINING)
]
PatienceOption = Annotated[
    int | None, typer.Option(help="Stop after so many epochs without a better mAP on val.", rich_help_panel=_TRAINING)
]
QuantizeOption = Annotated[
    Literal["ptq", "qat"],
    typer.Option(help="How int8 is made: ptq calibrates, qat fine-tunes for it first.", rich_help_panel=_TRAINING),
]
FlipsOption = Annotated[
    bool,
    typer.Option("--flips/--no-flips", help="Mirror left and right; not for text.", rich_help_panel=_CHANGES),
]
VerticalOption = Annotated[
    bool,
    typer.Option("--vertical-flips", help="Mirror up and down: where nothing has an up.", rich_help_panel=_CHANGES),
]
TurnsOption = Annotated[
    bool, typer.Option("--quarter-turns", help="Turn by 90 degrees: where nothing has an up.", rich_help_panel=_CHANGES)
]
RotateOption = Annotated[float, typer.Option(help="Turn by up to so many degrees.", rich_help_panel=_CHANGES)]
ZoomOption = Annotated[
    float, typer.Option(help="Enlarge or shrink by up to 1 + this; 0: not.", rich_help_panel=_CHANGES)
]
TranslateOption = Annotated[
    float, typer.Option(help="Shift by up to this share of the side.", rich_help_panel=_CHANGES)
]
MosaicOption = Annotated[
    float, typer.Option(help="Share of pictures put together from four.", rich_help_panel=_CHANGES)
]
ColoursOption = Annotated[
    bool,
    typer.Option("--colours/--no-colours", help="Change brightness, contrast, colours.", rich_help_panel=_CHANGES),
]

# What the options show as their defaults.
USUAL: Final = Augmentation()


def augmentation(
    *,
    flips: bool,
    vertical_flips: bool,
    quarter_turns: bool,
    colours: bool,
    rotate: float,
    zoom: float,
    translate: float,
    mosaic: float,
) -> Augmentation:
    """The options as the trainer wants them: a switch that is on is one half, or the usual strength."""
    off = {} if colours else {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue_deg": 0.0}
    return Augmentation(
        flip_horizontal=USUAL.flip_horizontal if flips else 0.0,
        flip_vertical=0.5 if vertical_flips else 0.0,
        quarter_turn=0.5 if quarter_turns else 0.0,
        rotate_deg=rotate,
        zoom=zoom,
        translate=translate,
        mosaic=mosaic,
        **off,
    )


def stored_weights(weights: str, storage: Storage) -> str:
    """`none` and `imagenet` as they are; a file's key in the store, where it is put for the trainers.

    Raises:
        PlanError: There is no such file, or Keras would not know its form.
    """
    if weights in ("none", "imagenet"):
        return weights
    path = Path(weights)
    if not path.is_file():
        raise PlanError(f"--weights {weights}: expected none, imagenet or a file, found no such file")
    if not path.name.endswith((".h5", ".keras")):
        raise PlanError(f"--weights {weights}: expected a Keras weights file (.h5, .weights.h5 or .keras)")
    content = path.read_bytes()
    storage.make_root()
    key = f"weights/{hashlib.sha256(content).hexdigest()[:16]}-{path.name}"
    storage.create(key, content)
    return key
