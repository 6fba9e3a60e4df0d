"""The rows of `make bench-loaders` that start processes deliver every picture, ours through the whole corridor."""

from pathlib import Path

import pytest

from tests.bench.loaders.tiny import EPOCHS, PICTURES, fit_tiny
from tests.bench.loaders.work import ROWS
from tests.unit.bench.test_loaders import IN_PROCESS


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name in ROWS if name not in IN_PROCESS])
def test_a_row_with_processes_delivers_every_picture(name: str, tmp_path: Path) -> None:
    took = fit_tiny(name, tmp_path / "photos", tmp_path)
    assert took.pictures == EPOCHS * PICTURES
    assert took.prepare_s > 0
