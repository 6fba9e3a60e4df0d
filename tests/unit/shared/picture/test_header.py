"""Format by magic, size and orientation from the header alone, bombs refused before a pixel is decoded."""

import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from shared.errors import ImageError
from shared.image_formats import format_of
from shared.picture import tiff
from shared.picture.header import ImageHeader, read_header
from tests.unit.worker.pictures import (
    Pixels,
    encode,
    encode_image,
    masked_bmp,
    soft_picture,
    with_orientation,
    with_tag,
)
from worker.picture.encode import decode

PICTURE = soft_picture(61, 37)
CAP = 200_000_000


def png_of(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    idat = b"IDAT" + zlib.compress(b"\0" * 100)
    chunks = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in (ihdr, idat, b"IEND")
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_format_and_size_come_from_the_bytes(image_format: str) -> None:
    header = read_header(encode(PICTURE, image_format), max_pixels=CAP)
    assert (header.format, header.width, header.height, header.orientation) == (image_format.lower(), 61, 37, 1)


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        ("JPEG", {"progressive": True}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("BMP", {}),
    ],
)
def test_size_is_read_from_every_kind_of_frame(image_format: str, options: dict[str, Any]) -> None:
    header = read_header(encode(PICTURE, image_format, **options), max_pixels=CAP)
    assert (header.width, header.height) == (61, 37)


def test_top_down_and_old_bitmaps_have_their_size() -> None:
    bmp = bytearray(encode(PICTURE, "BMP"))
    struct.pack_into("<i", bmp, 22, -37)
    assert read_header(bytes(bmp), max_pixels=CAP).height == 37
    core = b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 61, 37, 1, 24)
    assert (read_header(core, max_pixels=CAP).width, read_header(core, max_pixels=CAP).height) == (61, 37)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_read_where_the_format_has_one(image_format: str, orientation: int) -> None:
    header = read_header(with_orientation(PICTURE, orientation, image_format), max_pixels=CAP)
    assert (header.orientation, header.width, header.height) == (orientation, 61, 37)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_orientation_outside_the_standard_means_upright(orientation: int) -> None:
    assert read_header(with_orientation(PICTURE, orientation), max_pixels=CAP).orientation == 1


def test_broken_exif_block_means_upright() -> None:
    content = with_orientation(PICTURE, 6)
    at = content.index(b"Exif\0\0")
    for cut in (b"Exif\0\0XX", b"Exif\0\0II*\0\xff\xff\xff\xff"):
        assert read_header(content[:at] + cut + content[at + len(cut) :], max_pixels=CAP).orientation == 1


def test_big_endian_exif_is_read() -> None:
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, 8, 0)
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + b"\0\0\0\0"
    assert read_header(encode(PICTURE, exif=exif), max_pixels=CAP).orientation == 8


@pytest.mark.parametrize(
    ("content", "passes"),
    [
        (encode(PICTURE), True),
        (encode(PICTURE, progressive=True), False),
        (encode(PICTURE, mode="L"), False),
        (encode(PICTURE, mode="CMYK"), False),
        (with_orientation(PICTURE, 1), False),
        (encode(PICTURE, "PNG"), False),
    ],
)
def test_only_a_baseline_colour_jpeg_without_exif_may_pass_as_it_is(content: bytes, passes: bool) -> None:
    assert read_header(content, max_pixels=CAP).can_pass is passes


def bmp_of(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<IiiHHI", 40, width, height, 1, 24, 0) + bytes(20)


def jpeg_of(width: int, height: int) -> bytes:
    content = bytearray(encode(PICTURE))
    frame = content.index(b"\xff\xc0")
    struct.pack_into(">HH", content, frame + 5, height, width)
    return bytes(content)


@pytest.mark.parametrize("make", [png_of, bmp_of, jpeg_of])
def test_bomb_is_refused_from_its_header(make: object) -> None:
    with pytest.raises(ImageError, match="60000x60000 pixels, at most"):
        read_header(make(60000, 60000), max_pixels=CAP)  # type: ignore[operator]


@pytest.mark.parametrize("make", [png_of, bmp_of, jpeg_of])
def test_picture_without_width_or_height_is_refused(make: object) -> None:
    with pytest.raises(ImageError):
        read_header(make(0, 100), max_pixels=CAP)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("content", "described"),
    [
        (b"", "the file is empty"),
        (b"<!doctype html><html>", "text file"),
        (b"\0\0\0\x18ftypheic\0\0", "HEIC"),
        (b"\0\0\0\x18ftypavif\0\0", "AVIF"),
        (b"These are notes.\r\n\tMine.", "a text file"),
        (b"\x01\x02\x03", "it begins with 01 02 03"),
    ],
)
def test_what_is_no_picture_is_described(content: bytes, described: str) -> None:
    with pytest.raises(ImageError, match=described):
        read_header(content, max_pixels=CAP)


def test_png_chunk_that_claims_more_than_the_file_holds_is_refused_before_decoding() -> None:
    content = encode(PICTURE, "PNG")
    at = content.index(b"IDAT")
    claimed = content[: at - 4] + struct.pack(">I", 2**31 - 1) + content[at:]
    header = read_header(claimed, max_pixels=CAP)
    assert header.is_cut
    with pytest.raises(ImageError, match="ends within a chunk"):
        decode(claimed, header, (1, 1))
    assert read_header(content + b"trailing bytes", max_pixels=CAP).width == 61


def headers_of_prefixes(content: bytes) -> list[ImageHeader]:
    headers = []
    for end in range(len(content)):
        try:
            headers.append(read_header(content[:end], max_pixels=CAP))
        except ImageError:
            continue
    return headers


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_every_prefix_of_a_file_gives_its_size_or_is_refused(image_format: str) -> None:
    content = (
        with_orientation(PICTURE, 6, image_format)
        if image_format in ("JPEG", "TIFF")
        else encode(PICTURE, image_format)
    )
    assert {(header.width, header.height) for header in headers_of_prefixes(content[:1500])} <= {(61, 37)}


def test_tiffs_that_would_be_read_wrongly_are_refused_with_advice() -> None:
    floats = encode_image(Image.fromarray(np.zeros((8, 8), np.float32)), "TIFF")
    gray_alpha = encode_image(Image.new("LA", (8, 8)), "TIFF")
    written, deep = cv2.imencode(".tiff", PICTURE.astype(np.uint16) * 257)
    assert written
    planes = with_tag(deep.tobytes(), tiff.PLANES, 2)
    reasons = {"32-bit samples": floats, "gray with alpha": gray_alpha, "a plane of 16-bit samples": planes}
    for reason, content in reasons.items():
        with pytest.raises(ImageError, match=rf"{reason}.*convert it to PNG, for example with `magick`"):
            read_header(content, max_pixels=CAP)


def test_tiff_of_8_bit_planes_or_of_one_deep_plane_is_read() -> None:
    gray = Image.fromarray(np.full((8, 8), 1000, np.uint16))
    for content in (encode(PICTURE, "TIFF"), encode_image(gray, "TIFF")):
        assert read_header(with_tag(content, tiff.PLANES, 2), max_pixels=CAP).format == "tiff"


def test_bmp_masks_that_the_decoder_passes_over_are_refused() -> None:
    opaque = np.full(PICTURE.shape[:2], 255, np.uint8)
    red_lowest = (0xFF, 0xFF00, 0xFF0000)
    for header_bytes in (40, 52):
        with pytest.raises(ImageError, match=r"masks 000000ff, 0000ff00, 00ff0000: .* convert it to PNG"):
            read_header(masked_bmp(PICTURE, opaque, *red_lowest, header_bytes=header_bytes), max_pixels=CAP)
    content = masked_bmp(PICTURE, opaque, *red_lowest, 0, header_bytes=56)
    header = read_header(content, max_pixels=CAP)
    np.testing.assert_array_equal(decode(content, header, (1, 1)), PICTURE[:, :, ::-1])


def test_frame_of_an_opencv_file_is_read_too() -> None:
    pixels: Pixels = soft_picture(50, 30)
    for extension in (".jpg", ".png", ".webp", ".bmp", ".tiff"):
        written, encoded = cv2.imencode(extension, pixels)
        assert written
        header = read_header(encoded.tobytes(), max_pixels=CAP)
        assert (header.width, header.height) == (50, 30)


def test_extensions_promise_formats() -> None:
    assert format_of("a/B.JPEG") == "jpeg"
    assert format_of("a.tif") == "tiff"
    assert format_of("a") is None
