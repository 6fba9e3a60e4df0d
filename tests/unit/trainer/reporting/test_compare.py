"""Finished runs side by side."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ExportError, FormatError
from shared.jobs.identity import make_note
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.reporting.compare import compare_runs, comparison_table


def finished(store: Path, run: str, float_map50: float, int8_map50: float) -> None:
    rows = {
        "float32": {"split": "test", "map50": float_map50, "map": 0.5, "bytes": 1000, "median_ms": 10.0},
        "int8": {"split": "test", "map50": int8_map50, "map": 0.49, "bytes": 270, "median_ms": 4.0},
    }
    folder = store / "runs" / run
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(rows))


def test_the_loss_by_int8_is_averaged_over_runs_with_its_spread(tmp_path: Path) -> None:
    finished(tmp_path, "seed-0", 0.90, 0.899)
    finished(tmp_path, "seed-1", 0.91, 0.905)
    rows = compare_runs(["seed-0", "seed-1"], Storage(str(tmp_path)))
    assert [row.drop for row in rows] == [pytest.approx(0.1), pytest.approx(0.5)]
    table = comparison_table(rows)
    assert "int8 loses 0.30 points of mAP50 on average over 2 runs (spread 0.28)\n" in table
    assert "\nworst run: loses 0.50 points; best run: loses 0.10 points\n" in table
    assert "size ratio at most 0.27, time ratio at most 0.40 (int8 / float32)" in table


def test_objects_and_intervals_are_beside_figures_and_a_dash_where_a_run_has_none(tmp_path: Path) -> None:
    finished(tmp_path, "old", 0.90, 0.899)
    finished(tmp_path, "new", 0.90, 0.899)
    file = tmp_path / "runs/new/metrics.json"
    rows = json.loads(file.read_text())
    rows["int8"] |= {"map50_interval": [0.8, 0.951], "objects": 26}
    file.write_text(json.dumps(rows))
    table = comparison_table(compare_runs(["old", "new"], Storage(str(tmp_path)))).splitlines()
    head, units, old, new = table[:4]
    assert max(map(len, table)) <= 80
    assert (old.split()[2], new.split()[2]) == ("-", "26")
    assert "89.9 (80 to 95)" in new
    assert len(head) == len(units) == len(old) == len(new)


def test_a_run_that_was_measured_on_no_object_has_no_figures(tmp_path: Path) -> None:
    finished(tmp_path, "bare", 0.0, 0.0)
    finished(tmp_path, "good", 0.90, 0.899)
    file = tmp_path / "runs/bare/metrics.json"
    rows = json.loads(file.read_text())
    for row in rows.values():
        row |= {"map50_interval": [0.0, 1.0], "map_interval": [0.0, 1.0], "objects": 0}
    file.write_text(json.dumps(rows))
    storage = Storage(str(tmp_path))
    table = comparison_table(compare_runs(["bare"], storage))
    assert "int8 against float32 is not known: no photo that was measured on has an object that counts" in table
    assert table.splitlines()[2].split() == ["bare", "test", "0", *"-----", "0.27", "0.40"]
    both = comparison_table(compare_runs(["bare", "good"], storage))
    assert "int8 loses 0.10 points of mAP50 against float32" in both, "by the one that says something"
    head, units, bare, good = both.splitlines()[:4]
    assert len(head) == len(units) == len(bare) == len(good)


def test_int8_that_is_better_than_float32_is_said_to_gain(tmp_path: Path) -> None:
    finished(tmp_path, "seed-0", 0.90, 0.907)
    finished(tmp_path, "seed-1", 0.90, 0.895)
    finished(tmp_path, "seed-2", 0.90, 0.90)
    storage = Storage(str(tmp_path))
    assert "\nint8 gains 0.70 points of mAP50 against float32\n" in comparison_table(compare_runs(["seed-0"], storage))
    assert "\nint8 loses nothing of mAP50 against float32\n" in comparison_table(compare_runs(["seed-2"], storage))
    both = comparison_table(compare_runs(["seed-0", "seed-1"], storage))
    assert "\nint8 gains 0.10 points of mAP50 on average over 2 runs (spread 0.85)\n" in both
    assert "\nworst run: loses 0.50 points; best run: gains 0.70 points\n" in both


def test_a_run_that_is_not_there_is_told_with_those_that_have_figures(tmp_path: Path) -> None:
    finished(tmp_path, "seed-0", 0.90, 0.89)
    Storage(str(tmp_path)).write("runs/mine-fold-1/request.json", b"{}")
    with pytest.raises(ExportError, match=r"holds no run 'nope' \(there are: seed-0\)"):
        compare_runs(["seed-0", "nope"], Storage(str(tmp_path)))


@pytest.mark.parametrize(
    ("note", "told"),
    [(None, "is not finished .* status j --run seed-2"), ("cancelled", "was cancelled .* retry j --run seed-2")],
)
def test_a_run_without_figures_says_why_and_what_to_type(tmp_path: Path, note: str | None, told: str) -> None:
    storage, paths = Storage(str(tmp_path)), RunPaths("seed-2")
    storage.write(paths.request, RunSpec(run="seed-2", job="j").to_json().encode())
    if note is not None:
        storage.write(paths.cancelled, make_note("", at=1.0))
    with pytest.raises(ExportError, match=told) as raised:
        compare_runs(["seed-2"], storage)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["", "[]", "null", '{"int8": {}}'])
def test_damaged_figures_are_named_in_one_line(tmp_path: Path, content: str) -> None:
    finished(tmp_path, "r", 0.90, 0.89)
    (tmp_path / "runs/r/metrics.json").write_text(content)
    with pytest.raises(
        ExportError, match=r"runs/r/metrics\.json: damaged .*export r .*measures the run again"
    ) as raised:
        compare_runs(["r"], Storage(str(tmp_path)))
    assert "\n" not in str(raised.value)


DAMAGED = {
    "[]": r"found \[\], expected a JSON object",
    "": r"found no JSON \(",
    '"x"': r'found "x", expected',
    '{"training": 3}': "found 3 as its 'training', expected",
    '{"seconds": [1]}': r"found \[1\] as its 'seconds', expected",
}


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_summary_is_named_with_what_was_found_and_what_makes_it_again(tmp_path: Path, content: str) -> None:
    finished(tmp_path, "r", 0.90, 0.89)
    storage = Storage(str(tmp_path))
    storage.write(RunPaths("r").request, RunSpec(run="r", job="j").to_json().encode())
    storage.write(RunPaths("r").run, content.encode())
    told = (
        rf"runs/r/run\.json: damaged: {DAMAGED[content]}.* delete the file, and `.*retry j --run r.*` makes it again$"
    )
    with pytest.raises(FormatError, match=told) as raised:
        compare_runs(["r"], storage)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("asked", [{"audits": ("bc",)}, {"fold": 1, "folds": 2}])
def test_a_part_of_an_audit_is_said_to_have_no_model(tmp_path: Path, asked: dict[str, Any]) -> None:
    storage = Storage(str(tmp_path))
    storage.write(RunPaths("bc.audit").request, RunSpec(run="bc.audit", job="bc", **asked).to_json().encode())
    with pytest.raises(ExportError) as raised:
        compare_runs(["bc.audit"], storage)
    assert str(raised.value) == (
        "run 'bc.audit' belongs to an audit of job bc and has no model: name runs that have one"
    )


def trained(storage: Storage, run: str, **asked: Any) -> None:
    """A finished run that notes how it was trained."""
    finished(Path(storage.root), run, 0.9, 0.89)
    storage.write(RunPaths(run).request, RunSpec(run=run, job="j", **asked).to_json().encode())
    training = {"steps": 195, "schedule": {"steps_per_epoch": 10}}
    storage.write(RunPaths(run).run, json.dumps({"image_size": 320, "training": training}).encode())


def test_the_runs_differ_in_what_was_asked_and_what_came_of_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    trained(storage, "a", model="nano")
    trained(storage, "b", seed=7, batch=16, augmentation={"mosaic": 0.0})
    command = [sys.executable, "-m", "trainer", "compare", "a", "b", "--store", str(tmp_path)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert max(map(len, table)) <= 80
    first, second = (line.split() for line in table if line.startswith(("a ", "b ")) and "320" in line)
    assert first[1:5] == ["nano", "320", "20", "0"]
    assert second[1:5] == ["small", "320", "20", "7"]
    assert first[-2:] == ["270", "4.00"]
    assert "  b: batch 16, mosaic 0.0" in table
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [row["asked"]["batch"] for row in told] == [8, 16]
    assert told[1]["drop"] == pytest.approx(1.0)
