"""The rows of `make bench-loaders` that start no process deliver every picture; figures and sizes are arithmetic."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.loaders.sizing import Rates, sizing
from tests.bench.loaders.table import busy_line, figures, ratios, table
from tests.bench.loaders.tiny import EPOCHS, PICTURES, fit_tiny
from tests.bench.loaders.work import ROWS, Took, Work

IN_PROCESS = [name for name in ROWS if not name.startswith(("pool", "ours")) and name != "pydataset-processes"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("photos")


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_row_delivers_every_picture_of_every_epoch(name: str, folder: Path, tmp_path: Path) -> None:
    took = fit_tiny(name, folder, tmp_path)
    assert took.pictures == EPOCHS * PICTURES
    assert len(took.epochs_s) == len(took.cpu_s) == EPOCHS
    assert len(took.steps) == EPOCHS * PICTURES / 32


def a_work() -> Work:
    return Work(photos=Path(), scratch=Path(), pictures=320, side=224, epochs=10, step_s=0.02, is_augmented=True)


def took(epoch_s: float, epochs: int, prepare_s: float = 1.0) -> Took:
    return Took(
        prepare_s=prepare_s,
        fit_s=epochs * epoch_s,
        epochs_s=[epoch_s] * epochs,
        cpu_s=[epoch_s * 2] * epochs,
        pictures=320 * epochs,
        steps=[],
        made=[],
    )


def test_figures_are_medians_and_missing_epochs_are_extrapolated() -> None:
    found = figures([took(2.0, 3), took(1.0, 3), took(4.0, 3)], a_work(), epochs=10)
    assert found.later == pytest.approx(160)
    assert found.busy == pytest.approx(10 * 0.02 / 2)
    assert found.cpu_s == pytest.approx(4 / 0.32)
    assert found.total_s == pytest.approx(21)
    assert found.is_extrapolated


def test_ratios_name_what_was_asked_for() -> None:
    found = {
        "imagedatagenerator": figures([took(10.0, 10)], a_work(), epochs=10),
        "tfdata-all": figures([took(2.0, 3)], a_work(), epochs=10),
        "ours-cold": figures([took(0.5, 10)], a_work(), epochs=10),
        "ours-cached": figures([took(0.25, 10)], a_work(), epochs=10),
    }
    values = {what: (round(value, 2), target) for what, value, target in ratios(found)}
    assert values["ImageDataGenerator / ours cached, seconds of all epochs"] == (round(101 / 3.5, 2), 8.93)
    assert values["ours cached / tf.data uncached, images/s later"] == (8.0, 4.0)
    assert "≈ 21.0" in table(found, 10)


@pytest.mark.parametrize(
    ("took_s", "cpu_s", "verdict"), [(0.21, 0.2, "holds"), (0.4, 0.2, "MISSES"), (0.4, 0.35, "not asked")]
)
def test_busy_is_asked_for_only_where_the_cores_can_keep_up(took_s: float, cpu_s: float, verdict: str) -> None:
    row = replace(figures([took(took_s, 3)], a_work(), epochs=3), cpu_s=cpu_s / 0.32)
    assert busy_line("ours-cached", row, a_work(), cores=2).startswith(f"{verdict}: ")


def test_sizing_asks_for_cores_with_air() -> None:
    row = sizing(Rates(worker=400, cached=1000, cold=500)).splitlines()[3]
    assert row.startswith("| 20 ms | 1600 | 3 | 5 | 4 |")
