"""Each row of docs/reading-rules.md's "Reading an image" that is decided in the pixels."""

import io
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shared.errors import ImageError
from shared.picture.header import read_header
from shared.picture.pixels import turn_pixels
from shared.picture.tiff import EXTRA_SAMPLES, PHOTOMETRIC, WHITE_IS_ZERO
from shared.placement import PADDING_GRAY, place
from shared.specs.data import JobSpec
from tests.unit.worker.pictures import (
    Pixels,
    decode_stored,
    encode,
    encode_image,
    gray_png,
    masked_bmp,
    psnr,
    soft_picture,
    with_orientation,
    with_tag,
)
from worker.picture.encode import check_image, decode, store_image

CAP = 200_000_000


def store(content: bytes, **options: object) -> bytes:
    spec = JobSpec.model_validate({"image_size": 64} | options)
    return store_image(content, read_header(content, max_pixels=CAP), spec).jpeg


def decoded(content: bytes) -> Pixels:
    header = read_header(content, max_pixels=CAP)
    return decode(content, header, (header.width, header.height))


def test_stored_picture_is_a_baseline_jpeg_of_the_asked_size_without_exif() -> None:
    stored = store(with_orientation(soft_picture(200, 100), 6))
    header = read_header(stored, max_pixels=CAP)
    assert (header.format, header.width, header.height, header.can_pass) == ("jpeg", 64, 64, True)


@pytest.mark.parametrize("size", [(200, 100), (64, 200), (40, 30), (64, 64), (1000, 50), (3, 5), (700, 701)])
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_any_size_becomes_the_square(size: tuple[int, int], resize: str) -> None:
    for image_format in ("JPEG", "PNG"):
        assert decode_stored(store(encode(soft_picture(*size), image_format), resize=resize)).shape == (64, 64, 3)


@pytest.mark.parametrize("size", [(640, 480), (500, 375), (1024, 768), (90, 260), (50, 40)])
def test_stretched_picture_is_that_of_full_decode_and_area(size: tuple[int, int]) -> None:
    content = encode(soft_picture(*size))
    full = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert full is not None
    shrinks = size[0] >= 64 and size[1] >= 64
    expected = cv2.resize(full, (64, 64), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    assert psnr(decode_stored(store(content)), np.asarray(expected, np.uint8)) > 38


def test_letterbox_keeps_the_aspect_and_pads_with_gray() -> None:
    stored = decode_stored(store(encode(soft_picture(200, 100)), resize="letterbox"))
    assert np.abs(stored[:14].astype(int) - PADDING_GRAY).max() <= 8
    assert np.abs(stored[50:].astype(int) - PADDING_GRAY).max() <= 8
    expected = cv2.resize(soft_picture(200, 100), (64, 32), interpolation=cv2.INTER_AREA)
    assert psnr(stored[17:47], np.asarray(expected[1:31], np.uint8)) > 33


def test_jpeg_of_the_right_size_passes_byte_for_byte() -> None:
    content = encode(soft_picture(64, 64), quality=80)
    assert store(content) == content
    assert store(content, resize="letterbox") == content


@pytest.mark.parametrize(
    "content",
    [
        encode(soft_picture(64, 64), progressive=True),
        encode(soft_picture(64, 64), mode="L"),
        with_orientation(soft_picture(64, 64), 1),
        encode(soft_picture(64, 64)) + b"trailing bytes",
    ],
)
def test_other_jpegs_of_the_right_size_are_written_anew(content: bytes) -> None:
    stored = store(content)
    assert stored != content
    assert read_header(stored, max_pixels=CAP).can_pass


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_every_orientation_is_stored_upright(image_format: str, orientation: int, resize: str) -> None:
    raw = soft_picture(160, 96)
    options = {"lossless": True} if image_format == "WEBP" else {}
    stored = store(with_orientation(raw, orientation, image_format, **options), resize=resize)
    upright = store(encode(turn_pixels(raw, orientation), "PNG"), resize=resize)
    assert psnr(decode_stored(stored), decode_stored(upright)) > 36


def test_sixteen_bit_tiff_is_turned_by_us_and_not_by_opencv() -> None:
    deep = soft_picture(30, 20).astype(np.uint16) * 257
    written, content = cv2.imencode(".tiff", deep)
    assert written
    header = read_header(content.tobytes(), max_pixels=CAP)
    assert decode(content.tobytes(), header, (30, 20)).shape == (20, 30, 3)


PICTURE = soft_picture(48, 40)
ALPHA = np.zeros((40, 48), np.uint8)
ALPHA[10:30] = 255
ALPHA[:10] = 128
OVER_WHITE = np.round(PICTURE.astype(float) * (ALPHA / 255)[:, :, None] + 255.0 * (1 - ALPHA / 255)[:, :, None]).astype(
    np.uint8
)
RGBA = Image.fromarray(np.dstack([PICTURE[:, :, ::-1], ALPHA]))
GRAY = cv2.cvtColor(PICTURE, cv2.COLOR_BGR2GRAY)
GRAY_BGR = np.dstack([GRAY] * 3)


def opencv_file(extension: str, pixels: NDArray[Any]) -> bytes:
    written, encoded = cv2.imencode(extension, pixels)
    assert written
    return encoded.tobytes()


@pytest.mark.parametrize(
    ("content", "expected", "tolerance"),
    [
        pytest.param(encode(PICTURE, "PNG"), PICTURE, 0, id="png"),
        pytest.param(encode(PICTURE, "BMP"), PICTURE, 0, id="bmp"),
        pytest.param(encode(PICTURE, "TIFF"), PICTURE, 0, id="tiff"),
        pytest.param(encode(PICTURE, "TIFF", compression="tiff_lzw"), PICTURE, 0, id="tiff-lzw"),
        pytest.param(encode(PICTURE, "WEBP", lossless=True), PICTURE, 0, id="webp"),
        pytest.param(encode(PICTURE, "PNG", mode="L"), GRAY_BGR, 2, id="png-gray"),
        pytest.param(encode(PICTURE, "JPEG", mode="L"), GRAY_BGR, 8, id="jpeg-gray"),
        pytest.param(encode(PICTURE, "JPEG", mode="CMYK"), PICTURE, 14, id="jpeg-cmyk"),
        pytest.param(encode(PICTURE, "TIFF", mode="CMYK"), PICTURE, 2, id="tiff-cmyk"),
        pytest.param(opencv_file(".png", PICTURE.astype(np.uint16) * 257), PICTURE, 0, id="png-16-bit"),
        pytest.param(opencv_file(".png", GRAY.astype(np.uint16) * 257), GRAY_BGR, 0, id="png-16-bit-gray"),
        pytest.param(opencv_file(".tiff", PICTURE.astype(np.uint16) * 257), PICTURE, 0, id="tiff-16-bit"),
        pytest.param(encode_image(RGBA, "PNG"), OVER_WHITE, 1, id="png-alpha"),
        pytest.param(encode_image(RGBA, "WEBP", lossless=True, exact=True), OVER_WHITE, 1, id="webp-alpha"),
        pytest.param(encode_image(RGBA, "TIFF"), OVER_WHITE, 2, id="tiff-alpha"),
        pytest.param(
            opencv_file(".png", np.dstack([PICTURE, ALPHA]).astype(np.uint16) * 257),
            OVER_WHITE,
            1,
            id="png-16-bit-alpha",
        ),
    ],
)
def test_every_kind_of_picture_becomes_the_right_8_bit_colours(
    content: bytes, expected: Pixels, tolerance: int
) -> None:
    found = decoded(content)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= tolerance


def test_palette_and_one_bit_pictures_become_colours() -> None:
    palette = Image.fromarray(PICTURE[:, :, ::-1].copy()).quantize(16)
    expected = np.asarray(palette.convert("RGB"))[:, :, ::-1]
    for image_format in ("PNG", "GIF", "BMP", "TIFF"):
        np.testing.assert_array_equal(decoded(encode_image(palette, image_format)), expected)
    bits = Image.fromarray(GRAY).convert("1")
    for image_format in ("PNG", "BMP", "TIFF"):
        found = decoded(encode_image(bits, image_format))
        np.testing.assert_array_equal(found[:, :, 0] > 0, np.asarray(bits))


def test_transparent_palette_and_gray_alpha_pngs_lie_on_white() -> None:
    palette = Image.fromarray(PICTURE[:, :, ::-1].copy()).quantize(16)
    content = encode_image(palette, "PNG", transparency=int(np.asarray(palette)[0, 0]))
    assert (decoded(content)[0, 0] == 255).all()
    gray_alpha = encode_image(RGBA.convert("LA"), "PNG")
    assert (decoded(gray_alpha)[35] == 255).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_transparent_gray_of_a_png_lies_on_white_at_every_depth(depth: int) -> None:
    samples = np.zeros((4, 8), np.uint16)
    samples[:, 4:] = 2**depth // 2
    samples[:, 7] = 2**depth - 1
    plain = decoded(gray_png(samples, depth))
    for clear, columns in ((0, slice(0, 4)), (2**depth // 2, slice(4, 7))):
        expected = plain.copy()
        expected[:, columns] = 255
        np.testing.assert_array_equal(decoded(gray_png(samples, depth, clear)), expected)


@pytest.mark.parametrize("samples", [255 - GRAY, (255 - GRAY).astype(np.uint16) * 257], ids=["8-bit", "16-bit"])
def test_gray_tiff_whose_zero_is_white_becomes_the_right_gray(samples: NDArray[Any]) -> None:
    content = with_tag(encode_image(Image.fromarray(samples), "TIFF"), PHOTOMETRIC, WHITE_IS_ZERO)
    np.testing.assert_array_equal(decoded(content), GRAY_BGR)


def test_fourth_band_of_a_tiff_is_alpha_unless_the_file_says_that_it_is_unspecified() -> None:
    unspecified = encode_image(Image.frombytes("RGBX", RGBA.size, RGBA.tobytes()), "TIFF")
    np.testing.assert_array_equal(decoded(unspecified), PICTURE)
    assert (decoded(with_tag(unspecified, EXTRA_SAMPLES, 2))[35] == 255).all()
    untagged = opencv_file(".tiff", np.dstack([PICTURE, ALPHA]).astype(np.uint16) * 257)
    assert (decoded(untagged)[35] == 255).all()


BGR_MASKS = (0xFF0000, 0xFF00, 0xFF)


@pytest.mark.parametrize("header_bytes", [40, 52])
@pytest.mark.parametrize("byte", [0, 128])
def test_fourth_byte_of_a_bmp_without_a_mask_for_it_is_no_alpha(header_bytes: int, byte: int) -> None:
    content = masked_bmp(PICTURE, np.full_like(ALPHA, byte), *BGR_MASKS, header_bytes=header_bytes)
    np.testing.assert_array_equal(decoded(content), PICTURE)


@pytest.mark.parametrize("header_bytes", [56, 108, 124])
def test_alpha_of_a_bmp_lies_on_white_unless_it_is_zero_everywhere(header_bytes: int) -> None:
    masks = (*BGR_MASKS, 0xFF000000)
    np.testing.assert_allclose(
        decoded(masked_bmp(PICTURE, ALPHA, *masks, header_bytes=header_bytes)), OVER_WHITE, atol=1
    )
    unused = masked_bmp(PICTURE, np.zeros_like(ALPHA), *masks, header_bytes=header_bytes)
    np.testing.assert_array_equal(decoded(unused), PICTURE)


@pytest.mark.parametrize("image_format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation_is_taken(image_format: str) -> None:
    first = Image.fromarray(PICTURE[:, :, ::-1].copy())
    options = {"lossless": True} if image_format == "WEBP" else {}
    others = [Image.new("RGB", first.size, colour) for colour in ("red", "blue")]
    content = encode_image(first, image_format, save_all=True, append_images=others, **options)
    assert psnr(decoded(content), PICTURE) > 25


def damaged(content: bytes, at: float, junk: bytes) -> bytes:
    start = int(len(content) * at)
    return content[:start] + junk + content[start + len(junk) :]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
@pytest.mark.parametrize("part", [0.3, 0.5, 0.9])
def test_truncated_picture_is_refused(image_format: str, part: float) -> None:
    content = encode(soft_picture(300, 200, seed=3), image_format)
    with pytest.raises(ImageError):
        store(content[: int(len(content) * part)])


@pytest.mark.parametrize("at", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [64, 300])
def test_damage_in_the_middle_of_a_jpeg_scan_is_refused(at: float, progressive: bool, size: int) -> None:
    """OpenCV and Pillow decode these in silence; the second size would be passed through byte for byte."""
    rng = np.random.default_rng(5)
    noise = cv2.GaussianBlur(rng.integers(0, 256, (size, size, 3), dtype=np.uint8), (0, 0), 2)
    content = encode(np.asarray(noise, np.uint8), progressive=progressive)
    store(content)
    for junk in (b"\xff" * 60, b"\x55" * 200):
        with pytest.raises(ImageError, match="damaged"):
            store(damaged(content, at, junk))
        with pytest.raises(ImageError, match="damaged"):
            check_image(damaged(content, at, junk), read_header(content, max_pixels=CAP), JobSpec())


def test_truncated_jpeg_with_an_end_marker_put_back_is_refused() -> None:
    content = encode(soft_picture(300, 200, seed=4))
    with pytest.raises(ImageError, match="damaged"):
        store(content[: len(content) * 2 // 3] + b"\xff\xd9")


def test_jpeg_padded_with_zeros_is_whole() -> None:
    content = encode(soft_picture(64, 64))
    padded = content[:-2] + bytes(40) + b"\xff\xd9"
    assert decode_stored(store(padded)).shape == (64, 64, 3)


def test_damaged_lzw_tiff_and_png_are_refused() -> None:
    for options in ({"image_format": "PNG"}, {"image_format": "TIFF", "compression": "tiff_lzw"}):
        with pytest.raises(ImageError):
            store(damaged(encode(soft_picture(300, 200), **options), 0.5, bytes(40)))


def test_size_that_the_decoder_does_not_confirm_is_refused() -> None:
    content = encode(soft_picture(100, 100))
    header = read_header(encode(soft_picture(101, 100)), max_pixels=CAP)
    with pytest.raises(ImageError, match="header says 101x100"):
        decode(content, header, (101, 100))


def test_quality_option_is_obeyed() -> None:
    content = encode(soft_picture(300, 200))
    assert len(store(content, jpeg_quality=60)) < len(store(content, jpeg_quality=95))


def test_scaled_decode_never_goes_below_the_target() -> None:
    content = encode(soft_picture(640, 480))
    header = read_header(content, max_pixels=CAP)
    assert decode(content, header, (320, 240)).shape == (240, 320, 3)
    assert decode(content, header, (320, 241)).shape == (480, 640, 3)
    assert decode(content, header, (1, 1)).shape == (60, 80, 3)
    assert decode(content, header, (2000, 2000)).shape == (480, 640, 3)


def test_letterbox_box_lies_on_its_object() -> None:
    picture = np.zeros((100, 200, 3), np.uint8)
    picture[20:80, 50:150] = 255
    stored = decode_stored(store(encode(picture, "PNG"), resize="letterbox", image_size=320))
    placement = place(200, 100, 320, "letterbox")
    xmin, ymin, xmax, ymax = placement.into((50, 20, 150, 80))
    left, top, width, height = cv2.boundingRect((stored[:, :, 0] > 180).astype(np.uint8))
    np.testing.assert_allclose((xmin, ymin, xmax, ymax), (left, top, left + width, top + height), atol=1)


def test_pictures_agree_with_pillow() -> None:
    for content in (encode(PICTURE, "JPEG", mode="CMYK"), encode(PICTURE, "JPEG"), encode(PICTURE, "PNG")):
        theirs = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))[:, :, ::-1]
        assert np.abs(decoded(content).astype(int) - theirs.astype(int)).max() <= 3


@pytest.mark.parametrize("image_format", ["PNG", "JPEG"])
def test_what_is_finer_than_a_stored_pixel_becomes_its_mean(image_format: str) -> None:
    """A grid of single white pixels: sampled it would be stripes of black and white."""
    fine = np.zeros((480, 480, 3), np.uint8)
    fine[::3, ::3] = 255
    stored = decode_stored(store(encode(fine, image_format))).astype(float)
    assert stored.mean() == pytest.approx(255 / 9, abs=4)
    assert stored.std() < 16


@pytest.mark.parametrize(("size", "first", "last"), [((100, 73), 8, 54), ((73, 100), 8, 54)])
def test_the_odd_row_of_padding_is_below_or_right_where_boxes_have_it(
    size: tuple[int, int], first: int, last: int
) -> None:
    """47 of 64 px are photo: 8 px of gray before it, 9 behind."""
    stored = decode_stored(store(encode(np.full((size[1], size[0], 3), 255, np.uint8), "PNG"), resize="letterbox"))
    across = (stored[:, 32] if size[0] > size[1] else stored[32]).mean(axis=1)
    white = np.flatnonzero(across > 200)
    placed = place(*size, 64, "letterbox")
    assert (white[0], white[-1]) == (first, last)
    assert first == max(placed.top, placed.left)


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_turned_photo_has_the_hash_of_what_a_viewer_shows_also_where_it_is_only_looked_at(orientation: int) -> None:
    turned, upright = with_orientation(soft_picture(400, 300), orientation), soft_picture(400, 300)
    shown = encode(turn_pixels(upright, orientation))
    spec = JobSpec(image_size=64)
    wanted, seen, stored = (
        int(make(content, read_header(content, max_pixels=CAP), spec).hash, 16)
        for make, content in ((check_image, shown), (check_image, turned), (store_image, turned))
    )
    assert (wanted ^ seen).bit_count() < 60
    assert (wanted ^ stored).bit_count() < 60
