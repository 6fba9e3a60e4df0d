"""Made-up VOC folders."""

from typing import Final

# All picture numbers then have the same width in file names.
MAX_IMAGES: Final = 99_999
