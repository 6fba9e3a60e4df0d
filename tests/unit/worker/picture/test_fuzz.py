"""The short form of `tests/fuzz/pairs.py`: the worker survives damaged bytes, each case in one counter."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import ImageError
from shared.picture.header import read_header
from tests.fuzz.pairs import run_cases
from tests.quirks.quirks import all_quirks

PICTURES = [quirk.image() for quirk in all_quirks() if quirk.image is not None]


@pytest.mark.parametrize("seed", [101, 102])
def test_damaged_pairs_are_written_or_quarantined(seed: int, tmp_path: Path) -> None:
    result = run_cases(400, seed, tmp_path)
    assert result.outcomes["written"] > 20
    assert result.outcomes["quarantined"] > 20


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(PICTURES), st.integers(0, 400), st.binary(max_size=12))
def test_header_of_any_bytes_is_read_or_refused(content: bytes, at: int, junk: bytes) -> None:
    try:
        header = read_header(content[:at] + junk + content[at + len(junk) :], max_pixels=10**6)
    except ImageError:
        return
    assert 1 <= header.width * header.height <= 10**6
    assert 1 <= header.orientation <= 8
