"""What the report says of a training: its rows, which weights were exported, and what ended it early."""

from pathlib import Path
from typing import Any

import pytest

from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.reporting.history import ended_early, exported_epoch, exported_mean, read_history


def test_history_is_read_back_without_what_was_not_measured(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "results.csv").write_text("epoch,loss,val_map\n1,2.5,\n2,1.5,0.25\n")
    history = read_history(Storage(str(tmp_path)), "r")
    assert history == [{"epoch": 1.0, "loss": 2.5}, {"epoch": 2.0, "loss": 1.5, "val_map": pytest.approx(0.25)}]


def test_a_run_without_results_has_no_history(tmp_path: Path) -> None:
    assert read_history(Storage(str(tmp_path)), "gone") == []


@pytest.mark.parametrize(
    ("best_epoch", "objects", "expected"),
    [
        (2, 4, "epoch 2 of 6 was exported: the best of 3 validations on 4 objects"),
        (4, None, "epoch 4 of 6 was exported: the best of 3 validations"),
        (6, 4, ""),
        (0, 4, ""),
    ],
)
def test_an_epoch_that_is_not_the_last_is_named(best_epoch: int, objects: int | None, expected: str) -> None:
    history = [{"epoch": float(at)} | ({"val_map": 0.5} if at % 2 == 0 else {}) for at in range(1, 7)]
    assert exported_epoch(history, best_epoch, objects) == expected


@pytest.mark.parametrize(
    ("branches", "best_epoch", "expected"),
    [
        ([0, 1, 1, 2, 2, 3, 3], 7, "the mean of 3 branches was exported, each learned from the same start"),
        ([0, 1, 1, 2, 2, 3], 5, "the mean of 2 branches was exported, each learned from the same start"),
        ([0, 1, 1, 2, 2, 3], 0, "the mean of 2 branches was exported, each learned from the same start"),
        ([0, 1, 1, 2], 3, "the first branch was exported: no other was finished"),  # one alone is no mean
        ([0, 1, 1, 2], 4, ""),
        ([0, 1, 1], 3, ""),
        ([0, 1, 1, 2, 2, 3, 3], 6, ""),  # another epoch
        ([0, 0, 0], 3, ""),
        ([], 0, ""),
    ],
)
def test_a_mean_of_branches_is_named(branches: list[int], best_epoch: int, expected: str) -> None:
    history = [{"epoch": float(at), "branch": float(branch)} for at, branch in enumerate(branches, 1)]
    assert exported_mean(history, best_epoch) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"patience": 2}, "--patience 2 ended the training after epoch 4"),
        ({"patience": 3}, ""),
        ({"stop_at_map": 0.4}, "--stop-at-map 0.4 ended the training after epoch 4"),
        ({"stop_at_map": 0.45}, ""),
        ({}, ""),
    ],
)
def test_what_ended_a_training_early_is_named(asked: dict[str, Any], expected: str) -> None:
    history = [{"epoch": float(at), "val_map": figure} for at, figure in enumerate((0.2, 0.5, 0.3, 0.4), 1)]
    assert ended_early(RunSpec(run="r", job="j", **asked), history) == expected
    assert ended_early(RunSpec(run="r", job="j", **asked), [{"epoch": 1.0}]) == ""
