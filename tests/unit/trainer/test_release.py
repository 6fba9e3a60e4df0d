"""A release of the tiny network whose truth is what its float32 form sees: int8 loses points, and the gate says so."""

import contextlib
import html
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shared.errors import ExportError
from shared.job import RunSpec, Split
from shared.manifest import Manifest, ManifestShard
from shared.storage import Storage
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.export import FORMS
from trainer.predict import Detector
from trainer.release import ReleaseRequest, first_split, release

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")


class Recorder:
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


def truth_of_float32(exported: Exported) -> dict[str, Any]:
    detector = Detector(exported.forms["float32"])
    annotations: list[dict[str, Any]] = []
    for picture in exported.pictures:
        seen = detector.detect_stored(picture.rgb)
        for (xmin, ymin, xmax, ymax), class_id in list(zip(seen.boxes.tolist(), seen.class_ids, strict=True))[:6]:
            box = [xmin, ymin, xmax - xmin, ymax - ymin]
            row = {"id": len(annotations) + 1, "image_id": picture.image_id, "category_id": int(class_id), "bbox": box}
            annotations.append(row | {"area": box[2] * box[3], "iscrowd": 0, "ignore": 0})
    images = [{"id": picture.image_id, "width": SIZE, "height": SIZE} for picture in exported.pictures]
    categories = [{"id": index, "name": name} for index, name in enumerate(LABELS, start=1)]
    return {"images": images, "annotations": annotations, "categories": categories}


@pytest.fixture(scope="module")
def released(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Released:
    store, guard = tmp_path_factory.mktemp("store"), Recorder()
    with pytest.raises(ExportError) as caught:
        release(release_request(exported), storage=Storage(str(store)), guard=guard)
    return Released(folder=store / "runs" / "tiny-run", error=str(caught.value), guard=guard)


def release_request(exported: Exported) -> ReleaseRequest:
    truth = truth_of_float32(exported)
    return ReleaseRequest(
        spec=RunSpec(run="tiny-run", job="tiny", max_drop=0),
        manifest=manifest({"train": 8, "val": 8, "test": 8}),
        keras_model=exported.model.keras_model,
        priors=exported.model.priors,
        pictures=lambda _: iter(exported.pictures),
        truth=lambda _: truth,
        history=[{"epoch": 1, "loss": 3.0, "val_map50": None}, {"epoch": 2, "loss": 2.0, "val_map50": 0.5}],
        timings={"train": 12.5},
    )


def released_folder(exported: Exported, store: Path) -> Path:
    """Where a release lies, refused or not."""
    with contextlib.suppress(ExportError):
        release(release_request(exported), storage=Storage(str(store)), guard=Recorder())
    return store / "runs" / "tiny-run"


def test_refused_model_is_named_with_figures_and_advice(released: Released) -> None:
    assert re.search(r"(int8|dynamic): accuracy kept: mAP50 \d+\.\d\d against \d+\.\d\d of float32", released.error)
    assert released.error.endswith(f"The report shows more: {released.folder / 'report.html'}")
    assert re.search(r"Rounding the weights should cost next to nothing|Try --quantize qat", released.error)


def test_all_files_are_there_although_the_gate_refused(released: Released) -> None:
    names = {path.relative_to(released.folder).as_posix() for path in released.folder.rglob("*") if path.is_file()}
    assert {f"model_{form}.tflite" for form in FORMS} <= names
    assert {"model.keras", "saved_model/saved_model.pb", "labels.txt", "gate.json", "metrics.json"} <= names
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
    assert metrics["float32"]["map50"] > 0.7


def test_every_phase_is_told_to_the_guard(released: Released) -> None:
    phases = [entry["phase"] for entry in released.guard.told]
    assert list(dict.fromkeys(phases)) == ["export", "measure", "latency", "gate", "report", "write"]


def test_report_needs_no_network_and_says_why(released: Released) -> None:
    page = (released.folder / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert not re.search(r"""url\(|@import|https?://""", page)
    assert "<script" not in page
    assert "The export gate refused this model" in page
    assert re.search(r"Rounding the weights should cost next to nothing|Try --quantize qat", html.unescape(page))
    assert "Ähre" in page
    assert page.count("data:image/") == 7


def test_card_has_its_figures(released: Released) -> None:
    card = (released.folder / "model_card.md").read_text()
    assert "REFUSED" in card
    assert "| int8 (ptq) |" in card
    assert "| Ähre |" in card
    assert "\n\n\n\n" not in card


def test_plots_are_pictures_of_a_size(released: Released) -> None:
    for path in (released.folder / "plots").iterdir():
        drawn = cv2.imread(str(path))
        assert drawn is not None
        assert min(drawn.shape[:2]) > 100, path.name
        assert float(np.std(drawn)) > 5, path.name


def test_split_to_measure_on_falls_back() -> None:
    assert first_split(manifest({"train": 5, "val": 3, "test": 0}), ("test", "val", "train")) == "val"
    assert first_split(manifest({"train": 5}), ("test", "val", "train")) == "train"
