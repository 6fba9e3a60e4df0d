"""What the bytes of a picture file say before anybody resizes it: format, size, orientation, damage, a missing end."""

from typing import Final

# What to do about a sound picture of a kind that is not read.
CONVERT: Final = "convert it to PNG, for example with `magick`"
