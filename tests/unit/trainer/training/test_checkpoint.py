"""A checkpoint says which variables its vectors hold: read by this network only, or refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.errors import TrainingError
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.training.test_loop import small_network, trained
from trainer.network.detector import build_model
from trainer.rerun import export_run
from trainer.training.checkpoint import (
    TrainingProgress,
    exportable_weights,
    load_checkpoint,
    newest_progress,
    save_checkpoint,
)
from trainer.training.variable_layout import Layout, NetworkVariable, layout_of

REMEDY = r"to train from the start, remove \S+runs/r/checkpoints and `.+ retry r --store \S+`"
# Of a run that is not the job's own.
REMEDY_BESIDE = REMEDY.replace("retry r", "retry j --run r")

Rows = list[dict[str, Any]]


def rewrite_variables(store: Path, change: Callable[[Rows], Rows] | None) -> None:
    """Change what the checkpoints of run `r` say of their variables; None takes it out."""
    for path in (store / "runs/r/checkpoints").glob("*.npz"):
        with np.load(path) as stored:
            arrays: dict[str, Any] = {name: stored[name] for name in stored.files}
        told = json.loads(arrays.pop("variables").tobytes())
        if change is not None:
            text = json.dumps({**told, "variables": change(told["variables"])})
            arrays["variables"] = np.frombuffer(text.encode(), np.uint8)
        np.savez(path, **arrays)


def test_layers_of_equal_size_in_another_order_are_refused(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    found, expected = r"conv1/kernel float32 \[3, 3, 8, 8\]", r"conv2/kernel float32 \[3, 3, 8, 8\]"
    with pytest.raises(TrainingError, match=rf"variable 3 is {found}, expected {expected}.*; {REMEDY}"):
        trained(tmp_path, epochs=1, build=lambda: small_network(order=(0, 2, 1)))


def test_what_trains_from_the_start_is_named_of_a_run_beside_the_jobs_own(tmp_path: Path) -> None:
    trained(tmp_path, epochs=1)
    Storage(str(tmp_path)).write(RunPaths("r").request, RunSpec(run="r", job="j").to_json().encode())
    with pytest.raises(TrainingError, match=REMEDY_BESIDE):
        trained(tmp_path, epochs=1, build=lambda: small_network(order=(0, 2, 1)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: [{**rows[0], "shape": [3, 8, 3, 3]}, *rows[1:]], r"variable 0 is conv0/kernel float32 \[3, 8, 3"),
        (lambda rows: [{**rows[0], "dtype": "float16"}, *rows[1:]], "variable 0 is conv0/kernel float16"),
        (lambda rows: rows[:-1], r"variable \d+ is absent, expected norm2/moving_variance float32 \[8\]"),
        (lambda rows: [*rows, rows[0]], r"variable \d+ is conv0/kernel float32 \[3, 3, 3, 8\], expected none"),
    ],
    ids=["shape", "dtype", "one fewer", "one more"],
)
def test_other_variables_are_refused_by_name(tmp_path: Path, change: Callable[[Rows], Rows], told: str) -> None:
    trained(tmp_path, epochs=1)
    rewrite_variables(tmp_path, change)
    with pytest.raises(TrainingError, match=rf"step-\d+\.npz: {told}.*; {REMEDY}"):
        trained(tmp_path, epochs=1)


def test_a_checkpoint_without_names_counts_as_absent_and_the_run_is_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, epochs=1)
    rewrite_variables(tmp_path, None)
    again = trained(tmp_path, epochs=1)
    assert "checkpoint_without_names" in caplog.messages
    assert again.progress.step > 0


def checkpoint_of_a_detector(store: Path, layout: Layout) -> Storage:
    """A run `r` that was interrupted: its request, its manifest and a checkpoint of step 5 with zeros for weights."""
    storage = Storage(str(store))
    size = sum(int(np.prod(variable.shape)) for variable in layout.variables)
    manifest = Manifest(
        job="j",
        request_digest="d",
        labels=("square", "disc"),
        image_size=64,
        resize="stretch",
        splits={},
        failed=(),
        counters={},
        class_counts={},
    )
    storage.write(RunPaths("r").request, RunSpec(run="r", job="j", model="nano").to_json().encode())
    storage.write(JobPaths("j").manifest, manifest.to_json().encode())
    progress = TrainingProgress(identity="i", seed=0, step=5)
    save_checkpoint(storage, "r", progress, {"average": np.zeros(size, np.float32)}, layout)
    return storage


def test_weights_of_the_same_variables_are_exported(tmp_path: Path) -> None:
    layout = layout_of(build_model(2, 64, "nano"))
    weights = exportable_weights(checkpoint_of_a_detector(tmp_path, layout), "r", layout, step=5)
    assert weights is not None
    assert not weights.any()


@pytest.mark.parametrize("step", [5, None])
def test_export_from_a_checkpoint_with_other_variables_is_refused(tmp_path: Path, step: int | None) -> None:
    layout = layout_of(build_model(2, 64, "nano"))
    first, second, *rest = layout.variables
    storage = checkpoint_of_a_detector(tmp_path, layout.model_copy(update={"variables": (second, first, *rest)}))
    told = rf"variable 0 is stem_norm/gamma float32 \[8\], expected stem/kernel float32 .*; {REMEDY_BESIDE}"
    with pytest.raises(TrainingError, match=told):
        export_run("r", storage=storage, guard=Unguarded(), step=step)


def test_export_from_a_checkpoint_without_names_is_refused(tmp_path: Path) -> None:
    storage = checkpoint_of_a_detector(tmp_path, layout_of(build_model(2, 64, "nano")))
    rewrite_variables(tmp_path, None)
    with pytest.raises(TrainingError, match="does not name its variables"):
        export_run("r", storage=storage, guard=Unguarded(), step=5)


def saved(store: Path, *steps: int, manifest: str = "m", **arrays: np.ndarray) -> Storage:
    """Checkpoints of run `r` at `steps`, each with its step as its only weight."""
    storage = Storage(str(store))
    for step in steps:
        progress = TrainingProgress(identity="i", manifest=manifest, seed=3, step=step, best_map=0.5, spent_s=1.5)
        own = arrays or {"average": np.full(1, step, np.float32)}
        save_checkpoint(storage, "r", progress, own, ONE_WEIGHT)
    return storage


ONE_WEIGHT = Layout(variables=(NetworkVariable(name="w", shape=(1,), dtype="float32"),))
WANTED = TrainingProgress(identity="i", manifest="m", seed=3)


def names(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "runs/r/checkpoints").iterdir())


def test_progress_and_arrays_are_read_back(tmp_path: Path) -> None:
    best = np.array([0.25], np.float32)
    found = load_checkpoint(saved(tmp_path, 7, average=best * 2, best=best), "r", WANTED, ONE_WEIGHT)
    assert found is not None
    progress, arrays = found
    assert progress == WANTED.model_copy(update={"step": 7, "best_map": 0.5, "spent_s": 1.5})
    assert {name: values.tolist() for name, values in arrays.items()} == {"average": [0.5], "best": [0.25]}


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 9, 10, 200)
    assert names(tmp_path) == ["step-000000010.npz", "step-000000200.npz"]


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = saved(tmp_path, 5, 6)
    newest = tmp_path / "runs/r/checkpoints/step-000000006.npz"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    found = load_checkpoint(storage, "r", WANTED, ONE_WEIGHT)
    assert found is not None
    assert found[0].step == 5
    assert "checkpoint_damaged" in caplog.messages
    newest.with_name("step-000000005.npz").write_bytes(b"torn")
    assert load_checkpoint(storage, "r", WANTED, ONE_WEIGHT) is None


def test_a_flipped_bit_in_the_directory_of_a_checkpoint_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    """What says which arrays there are, and how they are packed, lies behind them, and no CRC is of it."""
    mean = np.full(1, 0.5, np.float32)
    storage = saved(tmp_path, 5, 6, average=np.ones(1, np.float32), mean=mean)
    newest = tmp_path / "runs/r/checkpoints/step-000000006.npz"
    whole = newest.read_bytes()
    steps = []
    entry = whole.rindex(b"PK\1\2", 0, whole.rindex(b"PK\1\2"))  # the last but one
    for at in range(entry, whole.index(b"PK\5\6")):
        for bit in (0, 5):
            newest.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            found = load_checkpoint(storage, "r", WANTED, ONE_WEIGHT)
            assert found is not None
            assert found[1].keys() == {"average", "mean"}
            steps.append(found[0].step)
    assert {*steps} == {5, 6}, "what is told of dates and of other systems does not matter"


def test_a_damaged_checkpoint_is_neither_exported_nor_told_of(tmp_path: Path) -> None:
    storage = saved(tmp_path, 5, 6)
    newest = tmp_path / "runs/r/checkpoints/step-000000006.npz"
    newest.write_bytes(newest.read_bytes()[:-30])
    assert exportable_weights(storage, "r", ONE_WEIGHT) == 5
    assert exportable_weights(storage, "r", ONE_WEIGHT, step=6) is None
    progress = newest_progress(storage, "r")
    assert progress is not None
    assert progress.step == 5


def test_a_checkpoint_of_other_shards_counts_as_absent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    storage = saved(tmp_path, 5, manifest="of before")
    other = WANTED.model_copy(update={"identity": "j"})
    assert load_checkpoint(storage, "r", other, ONE_WEIGHT) is None
    assert "checkpoint_of_other_shards" in caplog.messages
    assert load_checkpoint(Storage(str(tmp_path)), "never trained", WANTED, ONE_WEIGHT) is None


def test_a_checkpoint_of_another_request_on_the_same_shards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=f"another request, data set or version; {REMEDY}"):
        load_checkpoint(saved(tmp_path, 5), "r", WANTED.model_copy(update={"identity": "j"}), ONE_WEIGHT)


def test_the_best_weights_are_exported_and_the_average_where_there_are_none(tmp_path: Path) -> None:
    storage = saved(tmp_path, 5)
    assert exportable_weights(storage, "r", ONE_WEIGHT) == 5
    saved(tmp_path, 5, average=np.ones(1, np.float32), mean=np.full(1, 2, np.float32))
    assert exportable_weights(storage, "r", ONE_WEIGHT) == 2
    saved(tmp_path, 5)
    saved(tmp_path, 6, average=np.ones(1, np.float32), best=np.full(1, 0.5, np.float32))
    assert exportable_weights(storage, "r", ONE_WEIGHT) == 0.5
    assert exportable_weights(storage, "r", ONE_WEIGHT, step=5) == 5
    assert exportable_weights(storage, "r", ONE_WEIGHT, step=4) is None
    assert exportable_weights(storage, "never trained", ONE_WEIGHT) is None
