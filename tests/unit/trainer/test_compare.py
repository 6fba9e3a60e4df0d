"""Finished runs side by side."""

import json
from pathlib import Path

import pytest

from shared.errors import ExportError
from shared.storage import Storage
from trainer.compare import compare_runs, comparison_table


def finished(store: Path, run: str, float_map50: float, int8_map50: float) -> None:
    rows = {
        "float32": {"split": "test", "map50": float_map50, "map": 0.5, "bytes": 1000, "median_ms": 10.0},
        "int8": {"split": "test", "map50": int8_map50, "map": 0.49, "bytes": 270, "median_ms": 4.0},
    }
    folder = store / "runs" / run
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(rows))


def test_seeds_are_summed_up(tmp_path: Path) -> None:
    finished(tmp_path, "seed-0", 0.90, 0.899)
    finished(tmp_path, "seed-1", 0.91, 0.905)
    rows = compare_runs(["seed-0", "seed-1"], Storage(str(tmp_path)))
    assert [row.drop for row in rows] == [pytest.approx(0.1), pytest.approx(0.5)]
    table = comparison_table(rows)
    assert "int8 loses 0.30 points of mAP50 on average over 2 runs, spread 0.28, 0.50 at worst" in table
    assert "at most 0.27 of the bytes, 0.40 of the time" in table


def test_unfinished_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not finished"):
        compare_runs(["seed-2"], Storage(str(tmp_path)))
