"""Pictures that end too early: how much of them is there, and which are kept."""

from contextlib import suppress
from typing import Any

import cv2
import numpy as np
import pytest

from shared.errors import ImageError
from shared.picture import cut_short
from shared.picture.header import read_header
from shared.specs.data import JobSpec
from tests.unit.worker.pictures import Pixels, decode_stored, encode, psnr, with_orientation
from worker.picture.encode import check_image, store_image

CAP = 200_000_000
SPEC = JobSpec(image_size=320)


def textured(width: int, height: int) -> Pixels:
    """No block of it is gray, or like its neighbour."""
    noise = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return np.asarray(cv2.GaussianBlur(noise, (0, 0), 1.5), np.uint8)


PICTURE = textured(640, 480)


def rows_of(content: bytes) -> float | None:
    closed = cut_short.close(content, read_header(content, max_pixels=CAP))
    return None if closed is None else closed.rows


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"mode": "L"}, {"restart_marker_rows": 1}], ids=str)
def test_the_share_of_a_jpeg_is_the_share_of_its_rows(options: dict[str, Any]) -> None:
    content = encode(PICTURE, **options)
    full = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert full is not None
    for part in (0.3, 0.6, 0.9):
        cut = content[: int(len(content) * part)]
        there = cv2.imdecode(np.frombuffer(cut + b"\xff\xd9", np.uint8), cv2.IMREAD_COLOR)
        assert there is not None
        # The rows that are as they would have been: what nobody can argue about.
        same = np.flatnonzero(np.any(full != there, axis=(1, 2)))[0] / len(full)
        assert rows_of(cut) == pytest.approx(same, abs=0.04)


def test_a_jpeg_cut_by_a_few_bytes_is_kept_and_says_how_much() -> None:
    content = encode(PICTURE)
    whole = store_image(content, read_header(content, max_pixels=CAP), SPEC)
    for cut in (2, 3, 20, 60):
        header = read_header(content[:-cut], max_pixels=CAP)
        kept = store_image(content[:-cut], header, SPEC)
        assert kept.rows == 1.0 if cut == 2 else kept.rows is not None
        assert 0.99 <= (kept.rows or 0) <= 1
        assert psnr(decode_stored(kept.jpeg), decode_stored(whole.jpeg)) > 30
        assert check_image(content[:-cut], header, SPEC).rows == kept.rows
    assert whole.rows is None


def test_a_progressive_jpeg_is_kept_only_where_its_last_scan_is_nearly_whole() -> None:
    content = encode(PICTURE, progressive=True)
    assert (rows_of(content[:-2]), rows_of(content[: len(content) // 2])) == (1.0, None)
    assert (rows_of(content[:-20]) or 0) >= 0.99
    last_scan = content.rindex(b"\xff\xda")
    assert rows_of(content[: (last_scan + len(content)) // 2]) == pytest.approx(0.5, abs=0.15)
    assert rows_of(content[:last_scan]) is None


def test_a_png_cut_by_a_few_bytes_is_kept_and_its_last_row_goes_on() -> None:
    for image in (PICTURE, PICTURE[:, :, 0]):
        content = cv2.imencode(".png", image)[1].tobytes()
        for cut in (1, 4, 11, 12, 13, 20):  # within its last chunk, all of it, and the data before it
            kept = store_image(content[:-cut], read_header(content[:-cut], max_pixels=CAP), SPEC)
            assert kept.rows is not None
            assert kept.rows >= 0.99
        header = read_header(content[: len(content) * 2 // 3], max_pixels=CAP)
        with pytest.raises(ImageError, match="ends within a chunk"):
            store_image(content[: len(content) * 2 // 3], header, SPEC)


def test_with_drop_nothing_that_is_cut_is_kept() -> None:
    spec = JobSpec(image_size=320, damaged="drop")
    for content in (encode(PICTURE), cv2.imencode(".png", PICTURE)[1].tobytes()):
        header = read_header(content[:-2], max_pixels=CAP)
        with pytest.raises(ImageError):
            store_image(content[:-2], header, spec)


def test_a_cut_picture_of_the_target_size_is_stored_whole_again() -> None:
    content = encode(textured(320, 320))[:-2]
    stored = store_image(content, read_header(content, max_pixels=CAP), SPEC)
    assert stored.jpeg.endswith(b"\xff\xd9")
    assert decode_stored(stored.jpeg).shape == (320, 320, 3)


def test_a_turned_picture_that_is_cut_is_stored_upright() -> None:
    content = with_orientation(PICTURE, 6)
    header = read_header(content[:-20], max_pixels=CAP)
    kept, whole = (store_image(part, header, SPEC) for part in (content[:-20], content))
    assert psnr(decode_stored(kept.jpeg), decode_stored(whole.jpeg)) > 30


@pytest.mark.parametrize("junk", [b"\xff" * 60, b"\x55" * 200, bytes(300)])
@pytest.mark.parametrize("at", [0.1, 0.5, 0.9, 0.99])
def test_damage_inside_a_whole_file_is_not_taken_for_a_cut(junk: bytes, at: float) -> None:
    for content in (encode(PICTURE), encode(PICTURE, progressive=True), cv2.imencode(".png", PICTURE)[1].tobytes()):
        start = min(int(len(content) * at), len(content) - len(junk) - 20)
        changed = content[:start] + junk + content[start + len(junk) :]
        with suppress(ImageError):
            assert rows_of(changed) is None
