"""What the bytes of a picture file say before it is resized: format, size, orientation, damage, a missing end."""

from typing import Final

# What to do about a sound picture of an unsupported kind.
CONVERT: Final = "convert it to PNG, for example with `magick`"
