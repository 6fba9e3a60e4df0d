"""The colours of classes and mistakes, the same in every picture, report and page. Standard library only."""

from typing import Final

Colour = tuple[int, int, int]

# Okabe and Ito's palette, which colour-blind people can tell apart, in BGR; classes take its colours in turn. Its black
# and vermilion are left out: mistakes are red.
PALETTE: Final[tuple[Colour, ...]] = (
    (233, 180, 86),
    (115, 158, 0),
    (0, 159, 230),
    (167, 121, 204),
    (178, 114, 0),
    (66, 228, 240),
)
MISTAKE: Final[Colour] = (30, 24, 205)

BLACK: Final[Colour] = (0, 0, 0)
_WHITE: Final[Colour] = (255, 255, 255)


def colour_of(class_id: int) -> Colour:
    """The colour of a class (from 1), BGR."""
    return PALETTE[(class_id - 1) % len(PALETTE)]


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever is easier to read on `colour`, BGR."""
    blue, green, red = colour
    return BLACK if 0.11 * blue + 0.59 * green + 0.3 * red > 110 else _WHITE


def as_css(colour: Colour) -> str:
    """A BGR colour as style sheets write it: `#rrggbb`."""
    blue, green, red = colour
    return f"#{red:02x}{green:02x}{blue:02x}"
