"""A run that was trained is exported again from what it kept, and measured again; what it noted of itself follows."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from shared.errors import ExportError, FormatError, StopRequested
from shared.jobs.identity import make_note
from shared.jobs.paths import JobPaths, RunPaths
from shared.leasing.guard import Unguarded
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.data.test_examples import SIDE, write_job
from tests.unit.trainer.pictures import coco_truth, drawn_examples
from trainer.commit import released_files
from trainer.network.detector import build_model
from trainer.rerun import evaluate_run, export_run
from trainer.tflite.convert import FORMS
from trainer.training.checkpoint import TrainingProgress, save_checkpoint
from trainer.training.variable_layout import layout_of

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

FINISHED = {"run": "r", "seconds": {"read": 1.0, "train": 2.5, "release": 9.0}, "metrics": {"int8": {"map50": 0.9}}}


def trained_run(folder: Path) -> tuple[Storage, np.ndarray]:
    """A finished run `r` with two checkpoints and nothing exported; the best weights of the newest one."""
    examples = drawn_examples(6)
    storage, manifest = write_job(folder, examples)
    storage.write(JobPaths("j").manifest, manifest.to_json().encode())
    storage.write(JobPaths("j").annotations("train"), json.dumps(coco_truth(examples)).encode())
    storage.write(RunPaths("r").request, RunSpec(run="r", job="j", model="nano").to_json().encode())
    storage.write(RunPaths("r").run, make_note("", **FINISHED))
    best = np.zeros(0, np.float32)
    for step in (10, 20):
        keras.utils.set_random_seed(step)
        network = build_model(2, SIDE, "nano")
        best = flat(network)
        arrays = {"average": np.zeros_like(best), "best": best}
        save_checkpoint(storage, "r", TrainingProgress(identity="i", seed=0, step=step), arrays, layout_of(network))
    return storage, best


def flat(network: keras.Model) -> np.ndarray:
    values = [*network.trainable_variables, *network.non_trainable_variables]
    return np.concatenate([value.numpy().ravel() for value in values])


@dataclass(frozen=True)
class Exported:
    storage: Storage
    best: np.ndarray
    metrics: dict[str, Any]

    def folder(self) -> Path:
        return self.storage.local_path("runs/r")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    storage, best = trained_run(tmp_path_factory.mktemp("store"))
    metrics = export_run("r", storage=storage, guard=Unguarded()).metrics
    return Exported(storage, best, metrics)


def test_the_newest_checkpoints_best_weights_are_exported(exported: Exported) -> None:
    network = keras.models.load_model(exported.folder() / "model.keras", compile=False)
    np.testing.assert_array_equal(flat(network), exported.best)
    assert tuple(exported.metrics) == FORMS
    assert json.loads((exported.folder() / "metrics.json").read_text()) == exported.metrics


def test_a_finished_run_says_which_files_and_figures_it_has_now(exported: Exported) -> None:
    noted = json.loads((exported.folder() / "run.json").read_text())
    assert noted["seconds"] == FINISHED["seconds"], "what else it noted stays"
    assert noted["metrics"]["int8"] == {
        key: exported.metrics["int8"][key]
        for key in ("map50", "map", "map50_interval", "map_interval", "pictures", "objects", "best_score")
    }
    assert noted["warnings"] == []
    assert noted["files"] == released_files(exported.storage, "r")
    assert {f"model_{form}.tflite" for form in FORMS} | {"model.keras", "labels.txt", "metrics.json"} == set(
        noted["files"]
    )
    for name, facts in noted["files"].items():
        content = (exported.folder() / name).read_bytes()
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_the_report_has_the_times_of_the_training_before_it(exported: Exported) -> None:
    page = (exported.folder() / "report.html").read_text()
    assert ">train<" in page
    assert "2.5" in page


def test_evaluation_finds_the_figures_of_the_export(exported: Exported, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    found = evaluate_run("r", storage=exported.storage, split="train", forms=["float32", "int8"])
    for form in ("float32", "int8"):
        assert found[form]["map50"] == exported.metrics[form]["map50"]
        assert found[form]["per_class"] == exported.metrics[form]["per_class"]
        assert found[form]["bytes"] == exported.metrics[form]["bytes"]
        assert found[form]["median_ms"] > 0
    assert capfd.readouterr().err == "", "LiteRT tells of its delegate"


@pytest.mark.parametrize(("split", "forms"), [("trian", None), ("train", ["int4"])])
def test_an_unknown_split_or_form_is_named(exported: Exported, split: str, forms: list[str] | None) -> None:
    with pytest.raises(ExportError, match=f"not .*{forms[0] if forms else split}"):
        evaluate_run("r", storage=exported.storage, split=split, forms=forms)


def test_where_no_split_is_named_the_one_that_the_report_is_of_is_measured(exported: Exported) -> None:
    found = evaluate_run("r", storage=exported.storage, split=None, forms=["int8"])
    assert found["int8"]["map50"] == exported.metrics["int8"]["map50"]
    assert found["int8"]["pictures"] == 6


def test_where_no_object_of_test_counts_what_the_report_is_of_is_measured(exported: Exported, tmp_path: Path) -> None:
    store = shutil.copytree(exported.storage.local_path(""), tmp_path / "store")
    storage, paths = Storage(str(store)), JobPaths("j")
    manifest = json.loads(storage.read(paths.manifest))
    manifest["splits"]["test"] = manifest["splits"]["train"]
    storage.write(paths.manifest, json.dumps(manifest).encode())
    truth = json.loads(storage.read(paths.annotations("train")))
    difficult = [row | {"ignore": 1} for row in truth["annotations"]]
    storage.write(paths.annotations("test"), json.dumps({**truth, "annotations": difficult}).encode())
    (found,) = evaluate_run("r", storage=storage, split=None, forms=["int8"]).values()
    assert found["objects"] == exported.metrics["int8"]["objects"] > 0
    (asked,) = evaluate_run("r", storage=storage, split="test", forms=["int8"]).values()
    assert asked["objects"] == 0


def test_a_split_without_photos_is_named_with_those_that_have_some(exported: Exported) -> None:
    with pytest.raises(ExportError, match=r"^job j has no photo in test; there are train 6$"):
        evaluate_run("r", storage=exported.storage, split="test", forms=["int8"])


class StopsAt(Unguarded):
    def __init__(self, phase: str) -> None:
        self.phase = phase

    def advance(self, **progress: float | int | str) -> None:
        if progress["phase"] == self.phase:
            raise StopRequested("asked to stop")


@pytest.mark.parametrize("phase", ["export", "write"])
def test_an_export_that_is_stopped_replaces_nothing(tmp_path: Path, phase: str) -> None:
    storage, _ = trained_run(tmp_path)
    before = released_files(storage, "r"), storage.read(RunPaths("r").run)
    with pytest.raises(StopRequested):
        export_run("r", storage=storage, guard=StopsAt(phase))
    assert (released_files(storage, "r"), storage.read(RunPaths("r").run)) == before


def test_a_step_without_a_checkpoint_and_a_run_without_any_are_named(tmp_path: Path) -> None:
    storage, _ = trained_run(tmp_path)
    with pytest.raises(ExportError, match="has no checkpoint of step 15: there are those of 10, 20; without --step"):
        export_run("r", storage=storage, guard=Unguarded(), step=15)
    storage.write(RunPaths("fresh").request, RunSpec(run="fresh", job="j", model="nano").to_json().encode())
    with pytest.raises(ExportError, match=r"has no model\.keras and no checkpoint: there is nothing to export yet"):
        export_run("fresh", storage=storage, guard=Unguarded())
    with pytest.raises(ExportError, match="holds no run 'nobody'"):
        export_run("nobody", storage=storage, guard=Unguarded())


def test_an_export_names_a_damaged_summary_of_the_run(tmp_path: Path) -> None:
    storage, _ = trained_run(tmp_path)
    storage.write(RunPaths("r").run, b"[]")
    with pytest.raises(FormatError, match=r"runs/r/run\.json: damaged: found \[\], expected a JSON object .*retry j "):
        export_run("r", storage=storage, guard=Unguarded())


def network_of(storage: Storage) -> np.ndarray:
    return flat(keras.models.load_model(storage.local_path("runs/r/model.keras"), compile=False))


def int8_of(storage: Storage) -> bytes:
    return storage.read("runs/r/model_int8.tflite")


def test_a_finished_run_keeps_its_weights_when_a_step_is_exported_and_gives_them_again(tmp_path: Path) -> None:
    storage, best = trained_run(tmp_path)
    export_run("r", storage=storage, guard=Unguarded())
    own = int8_of(storage)
    export_run("r", storage=storage, guard=Unguarded(), step=10)
    assert int8_of(storage) != own
    np.testing.assert_array_equal(network_of(storage), best)
    assert written(storage, RunPaths("r").run)["exported"] == "the checkpoint of step 10 was exported"
    export_run("r", storage=storage, guard=Unguarded())
    assert int8_of(storage) == own
    assert written(storage, RunPaths("r").run)["exported"] == ""


def test_a_training_that_went_on_after_an_export_is_exported_as_it_stands_now(tmp_path: Path) -> None:
    storage, best = trained_run(tmp_path)
    storage.remove(RunPaths("r").run)
    export_run("r", storage=storage, guard=Unguarded(), step=10)
    assert not np.array_equal(network_of(storage), best)
    export_run("r", storage=storage, guard=Unguarded())
    np.testing.assert_array_equal(network_of(storage), best)


def test_an_export_of_a_training_under_way_says_which_epoch_its_weights_are_of(tmp_path: Path) -> None:
    storage, best = trained_run(tmp_path)
    storage.remove(RunPaths("r").run)
    rows = "".join(f"{epoch},0.{9 - epoch},{branch}\n" for epoch, branch in enumerate([0, 1, 1, 2, 2, 3], 1))
    storage.write("runs/r/results.csv", f"epoch,val_map,branch\n{rows}".encode())
    progress = TrainingProgress(identity="i", seed=0, step=30, best_map=0.7, best_epoch=2)
    save_checkpoint(storage, "r", progress, {"best": best}, layout_of(build_model(2, SIDE, "nano")))
    export_run("r", storage=storage, guard=Unguarded())
    card = storage.read("runs/r/model_card.md").decode()
    assert "epoch 2 of 6 was exported" in card
    assert "the mean of 2 branches" not in card


def refused_run(folder: Path) -> Storage:
    """As `trained_run`, but the gate refused its model."""
    storage, _ = trained_run(folder)
    storage.remove(RunPaths("r").run)
    storage.write(RunPaths("r").failed, make_note("", run="r", kind="ExportError", reason="ExportError: refused"))
    return storage


def written(storage: Storage, key: str) -> Any:
    return json.loads(storage.read(key))


def test_a_refused_run_is_finished_by_an_export_that_passes(tmp_path: Path) -> None:
    storage, paths = refused_run(tmp_path), RunPaths("r")
    exported = export_run("r", storage=storage, guard=Unguarded(), max_drop=50)
    assert exported.is_finished
    assert not storage.exists(paths.failed)
    summary = written(storage, paths.run)
    request = RunSpec.model_validate(written(storage, paths.request))
    assert request.max_drop == 50, "what is released again is judged so too"
    assert summary["request_digest"] == request.digest()
    assert summary["files"] == released_files(storage, "r")
    assert summary["manifest_digest"] == hashlib.sha256(storage.read(JobPaths("j").manifest)).hexdigest()
    assert summary["training"]["steps"] == 20
    assert summary["seconds"]["total"] >= summary["seconds"]["release"] > 0
    assert summary["metrics"]["int8"]["map50"] == exported.metrics["int8"]["map50"]


@pytest.mark.parametrize("kind", ["TrainingError", None])
def test_a_run_that_is_not_at_its_end_is_left_to_its_trainer(tmp_path: Path, kind: str | None) -> None:
    storage, paths = refused_run(tmp_path), RunPaths("r")
    storage.remove(paths.failed)
    if kind is not None:
        storage.write(paths.failed, make_note("", run="r", kind=kind, reason="the loss is not finite"))
    before = storage.read(paths.request)
    assert not export_run("r", storage=storage, guard=Unguarded(), max_drop=50).is_finished
    assert not storage.exists(paths.run)
    assert storage.exists(paths.failed) == (kind is not None)
    assert storage.read(paths.request) == before
