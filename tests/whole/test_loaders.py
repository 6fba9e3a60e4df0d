"""The rows of `make bench-loaders` that start processes deliver every picture, ours through the whole corridor."""

from pathlib import Path

import pytest

from tests.bench.loaders.tiny import EPOCHS, PICTURES, fit_tiny
from tests.bench.loaders.work import ROWS
from tests.unit.bench.test_loaders import IN_PROCESS

# One row of ours on every landing, because it goes through the whole corridor; the others by hand.
WITH_PROCESSES = [
    pytest.param(name, marks=pytest.mark.whole if name == "ours-cached" else pytest.mark.slow)
    for name in ROWS
    if name not in IN_PROCESS
]


@pytest.mark.parametrize("name", WITH_PROCESSES)
def test_a_row_with_processes_delivers_every_picture(name: str, tmp_path: Path) -> None:
    took = fit_tiny(name, tmp_path / "photos", tmp_path)
    assert took.pictures == EPOCHS * PICTURES
    assert took.prepare_s > 0
