"""Made-up VOC folders."""

from typing import Final

# One more picture number than any set has would still be a file name of the same width.
MAX_IMAGES: Final = 99_999
