"""How strongly the trainer changes training pictures."""

from typing import Annotated, Final

from pydantic import Field

from shared.specs.frozen import Frozen
from shared.specs.options import Option

_SHARE: Final = Field(ge=0, le=1)


def _change(text: str, flags: str = "", *, is_switch: bool = False) -> Option:
    return Option(text, "Changes to training pictures", flags, is_switch=is_switch)


_COLOURS: Final = _change("Change brightness, contrast, colours.", "--colours/--no-colours", is_switch=True)
_MIRROR: Final = _change(
    "Mirror left and right; not if text is to be recognised.", "--flips/--no-flips", is_switch=True
)
_UPSIDE_DOWN: Final = _change(
    "Mirror up and down; if objects may lie any way up, as in aerial photos.", "--vertical-flips", is_switch=True
)
_TURN: Final = _change(
    "Turn by 90 degrees; if objects may lie any way up, as in aerial photos.", "--quarter-turns", is_switch=True
)


class Augmentation(Frozen):
    """How strongly training pictures are changed; the defaults are the measured ones (docs/decisions/0028).

    Flips and quarter turns are probabilities in [0, 1]; `zoom`, `aspect`, `contrast` and `saturation` are the largest
    factor up or down, minus 1; `translate` is a share of the side, `brightness` a share of white; `rotate_deg` and
    `hue_deg` are degrees either way. `mosaic` is the share of pictures put together from four, `mosaic_until` the share
    of the steps that have such pictures. `paste` is the share of pictures with objects pasted in from others; None:
    chosen for the backbone.
    """

    flip_horizontal: Annotated[float, _MIRROR, _SHARE] = 0.5
    flip_vertical: Annotated[float, _UPSIDE_DOWN, _SHARE] = 0.0
    quarter_turn: Annotated[float, _TURN, _SHARE] = 0.0
    rotate_deg: Annotated[float, _change("Turn by up to this many degrees.", "--rotate"), Field(ge=0, le=180)] = 0.0
    zoom: Annotated[
        float, _change("Enlarge or shrink by a factor of up to 1 + this; 0: do not."), Field(ge=0, le=4)
    ] = 0.25
    aspect: float = Field(default=0.15, ge=0, le=4)
    translate: Annotated[float, _change("Shift by up to this share of the side."), _SHARE] = 0.1
    mosaic: Annotated[float, _change("Share of pictures put together from four."), _SHARE] = 0.5
    mosaic_until: Annotated[float, _SHARE] = 0.75
    paste: Annotated[
        Annotated[float, _SHARE] | None,
        _change("Share of pictures with objects pasted in; default: half for a pretrained network with few photos."),
        Field(exclude_if=lambda paste: paste is None),  # older versions' digests do not contain it
    ] = None
    brightness: Annotated[float, _COLOURS, _SHARE] = 0.15
    contrast: Annotated[float, _COLOURS, Field(ge=0, le=4)] = 0.3
    saturation: Annotated[float, _COLOURS, Field(ge=0, le=4)] = 0.4
    hue_deg: Annotated[float, _COLOURS, Field(ge=0, le=180)] = 6.0
