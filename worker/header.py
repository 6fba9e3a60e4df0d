"""Image bytes → `ImageHeader`: format by magic, size and orientation, read without decoding a pixel.

A decompression bomb is refused here. Sources: PNG (W3C, section 5), WebP container (RFC 9649), GIF89a section 18,
BMP (Windows GDI, BITMAPINFOHEADER), TIFF 6.0, JPEG (T.81).
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from shared.errors import ImageError
from worker import jpeg, tiff

ImageFormat = Literal["jpeg", "png", "webp", "bmp", "gif", "tiff"]

_EXTENSIONS: Final[dict[str, ImageFormat]] = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".jfif": "jpeg",
    ".png": "png",
    ".webp": "webp",
    ".bmp": "bmp",
    ".dib": "bmp",
    ".gif": "gif",
    ".tif": "tiff",
    ".tiff": "tiff",
}
# ISO media files by their brand: phones write them, OpenCV reads none of them everywhere.
_ISO_BRANDS: Final = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF", b"avif": "AVIF", b"avis": "AVIF"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a picture says of itself. `width` and `height` are pixels as stored, before any orientation (1 to 8).

    `can_pass` tells that the file could be stored as it is: baseline JPEG, three components, upright, no EXIF.
    """

    format: ImageFormat
    width: int
    height: int
    orientation: int
    can_pass: bool


def read_header(content: bytes, *, max_pixels: int) -> ImageHeader:
    """Read the header of an image file.

    Raises:
        ImageError: Unknown or unreadable format, or more than `max_pixels` pixels.
    """
    header = _read(content)
    if header.width < 1 or header.height < 1:
        raise ImageError(f"{header.format} of {header.width}x{header.height} pixels")
    if header.width * header.height > max_pixels:
        raise ImageError(f"{header.width}x{header.height} pixels, at most {max_pixels} are decoded (--max-pixels)")
    return header


def extension_format(name: str) -> ImageFormat | None:
    """The format that the extension of `name` promises; None where it promises none."""
    return _EXTENSIONS.get(PurePosixPath(name).suffix.lower())


def _read(content: bytes) -> ImageHeader:
    if content.startswith(b"\xff\xd8\xff"):
        return _read_jpeg(content)
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return _read_png(content)
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _read_webp(content)
    if content.startswith((b"GIF87a", b"GIF89a")):
        return _header("gif", _little(content, 6, 2), _little(content, 8, 2))
    if content.startswith((b"II*\0", b"MM\0*")):
        return _read_tiff(content)
    if content.startswith(b"BM"):
        return _read_bmp(content)
    raise ImageError(f"not an image this project reads: {_describe(content)}")


def _header(image_format: ImageFormat, width: int, height: int, orientation: int = 1) -> ImageHeader:
    return ImageHeader(format=image_format, width=width, height=height, orientation=orientation, can_pass=False)


def _little(content: bytes, start: int, size: int, *, signed: bool = False) -> int:
    if start + size > len(content):
        raise ImageError("the file ends within its header")
    return int.from_bytes(content[start : start + size], "little", signed=signed)


def _read_jpeg(content: bytes) -> ImageHeader:
    header = jpeg.read_header(content)
    return ImageHeader(
        format="jpeg",
        width=header.width,
        height=header.height,
        orientation=header.orientation,
        can_pass=header.is_baseline and header.components == 3 and not header.has_exif,
    )


def _read_png(content: bytes) -> ImageHeader:
    if content[12:16] != b"IHDR" or len(content) < 33:
        raise ImageError("PNG that ends within its header")
    orientation, position = 1, 8
    while position + 8 <= len(content) and content[position - 8 : position - 4] != b"IEND":
        size = int.from_bytes(content[position : position + 4])
        # OpenCV fills memory as far as a chunk claims to reach (33 MB: 2.8 s of CPU, found by the fuzz run).
        if position + 12 + size > len(content):
            raise ImageError("truncated: PNG that ends within a chunk")
        if content[position + 4 : position + 8] == b"eXIf":
            orientation = tiff.exif_orientation(content[position + 8 : position + 8 + size])
        position += 12 + size
    return _header("png", int.from_bytes(content[16:20]), int.from_bytes(content[20:24]), orientation)


def _read_webp(content: bytes) -> ImageHeader:
    """The canvas of an extended file, else the frame of its one chunk; the orientation from its EXIF chunk."""
    size: tuple[int, int] | None = None
    orientation, position = 1, 12
    while position + 8 <= len(content):
        chunk, length = content[position : position + 4], _little(content, position + 4, 4)
        start = position + 8
        if chunk == b"VP8X" and size is None:
            size = (1 + _little(content, start + 4, 3), 1 + _little(content, start + 7, 3))
        elif chunk == b"VP8L" and size is None:
            bits = _little(content, start + 1, 4)
            size = (1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        elif chunk == b"VP8 " and size is None:
            size = (_little(content, start + 6, 2) & 0x3FFF, _little(content, start + 8, 2) & 0x3FFF)
        elif chunk == b"EXIF":
            orientation = tiff.exif_orientation(content[start : start + length])
        position = start + length + length % 2
    if size is None:
        raise ImageError("WebP without a picture chunk")
    return _header("webp", *size, orientation)


def _read_bmp(content: bytes) -> ImageHeader:
    if _little(content, 14, 4) == 12:
        return _header("bmp", _little(content, 18, 2), _little(content, 20, 2))
    # A negative height says that the rows run from the top.
    return _header("bmp", _little(content, 18, 4, signed=True), abs(_little(content, 22, 4, signed=True)))


def _read_tiff(content: bytes) -> ImageHeader:
    directory = tiff.read_directory(content)
    if directory is None:
        raise ImageError("TIFF that ends within its header")
    tiff.check_samples(directory)
    values = directory.values
    orientation = values.get(tiff.ORIENTATION, 1)
    return _header(
        "tiff",
        values.get(tiff.WIDTH, 0),
        values.get(tiff.HEIGHT, 0),
        orientation if 1 <= orientation <= 8 else 1,
    )


def _describe(content: bytes) -> str:
    """What the first bytes look like, for the person who reads the report."""
    if not content:
        return "the file is empty"
    if content[4:8] == b"ftyp":
        return _ISO_BRANDS.get(content[8:12], "an ISO media file")
    if content.lstrip()[:1] == b"<":
        return "a text file (HTML or XML)"
    return f"it begins with {content[:8].hex(' ')}"
