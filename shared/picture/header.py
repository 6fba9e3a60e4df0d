"""Image bytes -> `ImageHeader`: format (by the first bytes), size and orientation, read without decoding a pixel.

Decompression bombs are refused here. Sources: PNG (W3C, section 5), WebP container (RFC 9649), GIF89a section 18,
BMP (Windows GDI, BITMAPINFOHEADER), TIFF 6.0, JPEG (T.81).
"""

import struct
from dataclasses import dataclass, replace
from typing import Final

from shared.errors import ImageError, ImageFormatUnknown
from shared.image_formats import ImageFormat
from shared.picture import CONVERT, heif, jpeg, tiff
from shared.text import LFS_POINTER

# The compression value of a BMP whose pixels are taken apart by masks.
_BITFIELDS: Final = 3
# The masks of red, green and blue in 32-bit pixels, as most files have them.
_USUAL_MASKS: Final = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
# The colour type of a PNG with one gray sample per pixel.
_GRAY: Final = 0
# From this orientation on the picture lies on its side: width and height are swapped.
_FIRST_SIDEWAYS: Final = 5
# ISO media files by their brand; OpenCV reads them only on some machines.
_ISO_BRANDS: Final = {b"avif": "AVIF", b"avis": "AVIF"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What a picture says about itself; `width` and `height` are pixels as stored, before any orientation (1 to 8).

    `can_pass` says that the file may be stored as it is: baseline JPEG, three components, no EXIF. `is_cut` says that
    the file is cut short, as far as headers show (PNG only). `clear_gray` is the gray value, in the file's own bit
    depth, that is transparent in a gray PNG.
    """

    format: ImageFormat
    width: int
    height: int
    orientation: int
    can_pass: bool
    is_cut: bool = False
    clear_gray: int | None = None

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) in pixels as a viewer shows the picture."""
        is_sideways = self.orientation >= _FIRST_SIDEWAYS
        return (self.height, self.width) if is_sideways else (self.width, self.height)

    def is_other_than(self, labelled: tuple[int, int] | None) -> str:
        """A remark if the `<size>` matches the picture neither as stored nor upright; "" if it matches or is None."""
        if labelled is None or labelled in (self.upright_size, (self.width, self.height)):
            return ""
        width, height = self.upright_size
        return f"<size> {labelled[0]}x{labelled[1]}, the picture is {width}x{height}"


def read_header(content: bytes, *, max_pixels: int) -> ImageHeader:
    """Read the header of an image file.

    Raises:
        ImageFormatUnknown: The first bytes are not those of a supported format.
        ImageError: The header is unreadable, or the picture has more than `max_pixels` pixels.
    """
    header = _read(content)
    if header.width < 1 or header.height < 1:
        raise ImageError(f"{header.format} of {header.width}x{header.height} pixels")
    if header.width * header.height > max_pixels:
        raise ImageError(f"{header.width}x{header.height} pixels, at most {max_pixels} are decoded: make it smaller")
    return header


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
    if heif.is_heif(content):
        return _header("heif", *heif.read_size(content))
    if content.startswith(b"BM"):
        return _read_bmp(content)
    if content.startswith(LFS_POINTER):
        raise ImageFormatUnknown("a pointer of Git LFS instead of the picture: `git lfs pull` fetches it")
    raise ImageFormatUnknown(f"not an image this project reads: {_describe(content)}")


def _header(image_format: ImageFormat, width: int, height: int, orientation: int = 1) -> ImageHeader:
    return ImageHeader(format=image_format, width=width, height=height, orientation=orientation, can_pass=False)


def _little(content: bytes, start: int, size: int, *, signed: bool = False) -> int:
    if start + size > len(content):
        raise ImageError("the file ends within its header")
    return int.from_bytes(content[start : start + size], "little", signed=signed)


def _read_jpeg(content: bytes) -> ImageHeader:
    frame: tuple[int, bytes] | None = None
    exif: bytes | None = None
    for marker, segment in jpeg.segments(content):
        if marker in jpeg.FRAMES:
            if frame is not None or len(segment) < 6:
                raise ImageError("JPEG with a broken or second frame header")
            frame = (marker, segment)
        elif marker == jpeg.APP1 and exif is None and segment.startswith(b"Exif\0"):
            exif = segment
    # Sample precision, height, width and number of components.
    _, height, width, components = (0, 0, 0, 0) if frame is None else struct.unpack_from(">BHHB", frame[1])
    if frame is None or not width or not height:
        raise ImageError("JPEG without a frame header that names its size")
    return ImageHeader(
        format="jpeg",
        width=width,
        height=height,
        orientation=1 if exif is None else tiff.exif_orientation(exif),
        can_pass=frame[0] == jpeg.BASELINE and components == 3 and exif is None,
    )


def _read_png(content: bytes) -> ImageHeader:
    if content[12:16] != b"IHDR" or len(content) < 33:
        raise ImageError("PNG that ends within its header")
    orientation, position, is_cut, clear_gray = 1, 8, False, None
    while position + 8 <= len(content) and content[position - 8 : position - 4] != b"IEND":
        size = int.from_bytes(content[position : position + 4])
        is_cut = position + 12 + size > len(content)
        if content[position + 4 : position + 8] == b"eXIf":
            orientation = tiff.exif_orientation(content[position + 8 : position + 8 + size])
        elif content[position + 4 : position + 8] == b"tRNS" and content[25] == _GRAY and size == 2:
            clear_gray = int.from_bytes(content[position + 8 : position + 10])
        position += 12 + size
    header = _header("png", int.from_bytes(content[16:20]), int.from_bytes(content[20:24]), orientation)
    return replace(header, is_cut=is_cut, clear_gray=clear_gray)


def _read_webp(content: bytes) -> ImageHeader:
    """The canvas of an extended file, or the frame of a simple one; the orientation from its EXIF chunk."""
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
    _check_masks(content)
    # A negative height means that the rows run from the top.
    return _header("bmp", _little(content, 18, 4, signed=True), abs(_little(content, 22, 4, signed=True)))


def _check_masks(content: bytes) -> None:
    """Refuse masks that OpenCV ignores: it reads those of 32-bit pixels only in headers of at least 56 bytes."""
    if _little(content, 14, 4) >= 56 or _little(content, 28, 2) != 32 or _little(content, 30, 4) != _BITFIELDS:
        return
    masks = content[54:66]
    if masks != _USUAL_MASKS:
        found = ", ".join(f"{_little(masks, start, 4):08x}" for start in (0, 4, 8))
        raise ImageError(f"BMP with the colour masks {found}: 00ff0000, 0000ff00, 000000ff are read; {CONVERT}")


def _read_tiff(content: bytes) -> ImageHeader:
    directory = tiff.read_directory(content)
    if directory is None:
        raise ImageError("TIFF that ends within its header")
    tiff.check_samples(directory)
    values = directory.values
    return _header("tiff", values.get(tiff.WIDTH, 0), values.get(tiff.HEIGHT, 0), tiff.orientation(directory))


def _describe(content: bytes) -> str:
    """What the first bytes look like, for the person who reads the report."""
    if not content:
        return "the file is empty"
    if content[4:8] == b"ftyp":
        return _ISO_BRANDS.get(content[8:12], "an ISO media file")
    if content.lstrip()[:1] == b"<":
        return "a text file (HTML or XML)"
    if (
        content[:512].isascii()
        and content[:512].decode().replace("\n", "").replace("\r", "").replace("\t", "").isprintable()
    ):
        return "a text file"
    return f"it begins with {content[:8].hex(' ')}"
