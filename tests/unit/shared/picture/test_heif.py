"""HEIC, the photos of phones: read where `pillow-heif` is, otherwise refused with what to do."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from shared.errors import ImageError
from shared.picture.header import read_header
from shared.specs.data import JobSpec
from tests.unit.worker.pictures import decode_stored, encode, psnr, soft_picture
from worker.picture.encode import store_image

CAP = 200_000_000
SPEC = JobSpec(image_size=128)
PICTURE = soft_picture(256, 192)


def heic() -> bytes:
    heif = pytest.importorskip("pillow_heif")
    target = io.BytesIO()
    heif.from_bytes(mode="BGR", size=(256, 192), data=PICTURE.tobytes()).save(target, quality=95)
    return target.getvalue()


def store(content: bytes) -> bytes:
    return store_image(content, read_header(content, max_pixels=CAP), SPEC).jpeg


def test_a_heic_is_stored_as_its_jpeg_would_be() -> None:
    content = heic()
    header = read_header(content, max_pixels=CAP)
    assert (header.format, header.width, header.height, header.orientation) == ("heif", 256, 192, 1)
    assert psnr(decode_stored(store(content)), decode_stored(store(encode(PICTURE)))) > 30


def test_a_heic_of_too_many_pixels_is_refused_before_decoding() -> None:
    with pytest.raises(ImageError, match="at most 100 are decoded"):
        read_header(heic(), max_pixels=100)


def test_a_heic_that_is_cut_is_refused() -> None:
    content = heic()
    for end in (len(content) // 2, len(content) - 300, 40, 12):
        with pytest.raises(ImageError):
            store(content[:end])


def test_without_the_library_the_reason_names_it() -> None:
    program = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from shared.picture.header import read_header\n"
        "read_header(b'\\0\\0\\0\\x18ftypheic' + bytes(40), max_pixels=9)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4])
    assert "HEIC: convert it to JPEG, or `pip install pillow-heif` where it is read" in ended.stderr
