"""HEIC and HEIF, the photos of phones -> pixels, if `pillow-heif` is installed (`pip install pillow-heif`)."""

import io
from typing import TYPE_CHECKING, Any, Final

from shared.errors import ImageError, ImageUnsupported

if TYPE_CHECKING:  # the producer reads headers, and has no numpy
    import numpy as np
    from numpy.typing import NDArray

# Brands of ISO media files (ISO/IEC 23008-12, annex B) that hold pictures coded with HEVC.
BRANDS: Final = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")

_DAMAGED: Final = "truncated or damaged HEIC"


def is_heif(content: bytes) -> bool:
    """Whether a file is HEIC or HEIF, by its first bytes."""
    return content[4:8] == b"ftyp" and content[8:12] in BRANDS


def read_size(content: bytes) -> tuple[int, int]:
    """(width, height) in pixels of the upright picture: turned as HEIF's own properties say, not as its EXIF says.

    Raises:
        ImageError: It cannot be read, or `pillow-heif` is not installed.
    """
    width, height = _open(content).size
    return int(width), int(height)


def decode(content: bytes) -> "NDArray[np.uint8]":
    """The upright picture as 8-bit BGR [H, W, 3].

    Raises:
        ImageError: As `read_size`.
    """
    import numpy as np

    picture = _open(content)
    try:
        pixels = np.asarray(picture)
    except (OSError, RuntimeError, ValueError, SyntaxError, EOFError) as error:
        raise ImageError(_DAMAGED) from error
    return np.ascontiguousarray(pixels[:, :, 2::-1] if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2))


def _open(content: bytes) -> Any:
    try:
        import pillow_heif
    except ImportError as error:
        raise ImageUnsupported("HEIC: convert it to JPEG, or `pip install pillow-heif` where it is read") from error
    try:
        return pillow_heif.open_heif(io.BytesIO(content), convert_hdr_to_8bit=True)
    except (OSError, RuntimeError, ValueError, SyntaxError, EOFError) as error:
        raise ImageError(_DAMAGED) from error
