"""Trained weights → everything a run hands out: models, figures, gate, plots, report, card.

Assembles the exporter's doors (export, measure, gate, plots, report) for `trainer/run.py` and `trainer export`. All is
written before the gate's word is given, so that the report of a refused model shows why.
"""

import json
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared import __version__
from shared.guard import Guard
from shared.job import SPLITS, RunSpec, Split
from shared.labels import LabelMap
from shared.manifest import Manifest, RunPaths
from shared.storage import Storage
from trainer import gate, measure
from trainer.asked import read_asked
from trainer.description import ModelDescription
from trainer.detections import Detections
from trainer.export import CALIBRATION_IMAGES, TrainedModel, convert_forms, save_keras
from trainer.illustrate import Illustrated, best_score, illustrate
from trainer.latency import latency_ms
from trainer.layer_error import LayerError, layer_errors
from trainer.measure import DetectionsById, Pictures, StoredPicture, Truth
from trainer.predict import Detector
from trainer.report import RunSummary, render_card, render_report

logger = logging.getLogger(__name__)

# Pictures on which Keras and float32 are compared one by one, and on which layers are traced.
_PARITY_PICTURES: Final = 16
_TRACED_PICTURES: Final = 4

# The licence of what this project adds; whoever trains decides on the weights.
_LICENCE: Final = "Apache-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """What is released.

    `keras_model` and `priors` as `trainer/model.py` makes them, with the weights to ship. `pictures` streams a split
    anew at each call, `truth` is its COCO form with categories. `history` has one row an epoch; `timings` are seconds
    of the stages before this one. `fine_tuned`, of `trainer/qat.py`, is what int8 is made of, if there is one.
    """

    spec: RunSpec
    manifest: Manifest
    keras_model: Any
    priors: NDArray[np.float32]
    pictures: Pictures
    truth: Truth
    fine_tuned: Any | None = None
    history: Sequence[Mapping[str, float | None]] = ()
    timings: Mapping[str, float] = field(default_factory=dict)


def release(request: ReleaseRequest, *, storage: Storage, guard: Guard) -> dict[str, Any]:
    """Export, measure, judge and illustrate; write it all below the run's folder.

    Args:
        request: What to release.
        storage: Where the run lies; the job's `job.json` is read for the report where it exists.
        guard: Told of every phase, asked before anything is written.

    Returns:
        The content of `metrics.json`.

    Raises:
        ExportError: The gate refused the model. Where the files could be run, everything is written by then.
    """
    released = _Release(request, guard)
    metrics = released.make(storage)
    guard.before_publish()
    with released.timed("write"):
        released.write(storage)
    logger.info("run_released", extra={"run": request.spec.run, "int8_map50": metrics["int8"]["map50"]})
    gate.require(released.checks, storage.url(f"{RunPaths(request.spec.run).root}/report.html"))
    return metrics


class _Release:
    """One release under way: what each phase made, for the next."""

    def __init__(self, request: ReleaseRequest, guard: Guard) -> None:
        self._request, self._guard = request, guard
        self._timings = dict(request.timings)
        self._files: dict[str, bytes] = {}
        self._measured_split = first_split(request.manifest, ("test", "val", "train"))
        self._gate_split = first_split(request.manifest, ("val", "test", "train"))
        manifest = request.manifest
        self._model = TrainedModel(
            keras_model=request.keras_model,
            priors=request.priors,
            fine_tuned=request.fine_tuned,
            description=ModelDescription(
                name=request.spec.run,
                version=__version__,
                licence=_LICENCE,
                labels=manifest.labels,
                image_size=manifest.image_size,
                resize=manifest.resize,
                data_digest=manifest.request_digest,
            ),
        )
        self.checks: list[gate.Check] = []

    def make(self, storage: Storage) -> dict[str, Any]:
        """All files, in memory; the metrics."""
        with self.timed("export"):
            models = self._export()
        self._check_files(models)
        with self.timed("measure"):
            detectors = {form: Detector(model) for form, model in models.items()}
            seen = self._detect(detectors, self._measured_split)
            same = self._measured_split == self._gate_split
            gate_seen = seen if same else self._detect(detectors, self._gate_split)
        with self.timed("latency"):
            picture = next(iter(self._request.pictures(self._measured_split))).rgb
            latency = latency_ms(models, picture, lambda: self._guard.advance(phase="latency"))
        metrics = self._metrics(models, seen, gate_seen, latency)
        with self.timed("gate"):
            layers = layer_errors(models["float32"], models["int8"], self._some(self._gate_split, _TRACED_PICTURES))
            self.checks += gate.check_detections(self._evidence(gate_seen, metrics, layers))
        with self.timed("report"):
            score = best_score(
                gate_seen["int8"], self._request.truth(self._gate_split), len(self._model.description.labels)
            )
            plots = self._illustrate(seen["int8"], score)
        summary = RunSummary(
            spec=self._request.spec,
            manifest=self._request.manifest,
            asked=read_asked(storage, self._request.spec.job),
            metrics=metrics,
            checks=self.checks,
            layers=layers,
            plots=plots,
            timings=self._timings,
            measured_split=self._measured_split,
            gate_split=self._gate_split,
            score=score,
        )
        self._collect(metrics, summary)
        return metrics

    def write(self, storage: Storage) -> None:
        """Every file whole, metrics last."""
        root = RunPaths(self._request.spec.run).root
        for name, content in self._files.items():
            storage.write(f"{root}/{name}", content)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the seconds that `stage` takes, and tell the guard that it began."""
        self._guard.advance(phase=stage)
        start = time.monotonic()
        yield
        self._timings[stage] = round(time.monotonic() - start, 2)

    def _export(self) -> Mapping[str, bytes]:
        calibration = lambda: self._some("train", CALIBRATION_IMAGES)  # noqa: E731 - converted more than once
        with tempfile.TemporaryDirectory(prefix="voc-release-") as folder:
            save_keras(self._model, Path(folder))
            forms = convert_forms(
                self._model,
                Path(folder, "saved_model"),
                calibration,
                lambda form: self._guard.advance(phase="export", form=form),
            )
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    self._files[path.relative_to(folder).as_posix()] = path.read_bytes()
        self._files |= {f"model_{form}.tflite": content for form, content in forms.items()}
        return forms

    def _detect(self, detectors: Mapping[str, Detector], split: Split) -> dict[str, DetectionsById]:
        found = {}
        for form, detector in detectors.items():
            self._guard.advance(phase="measure", form=form)
            found[form] = measure.detect_all(
                detector, self._request.pictures(split), partial(self._tell_pictures, form)
            )
        return found

    def _tell_pictures(self, form: str, pictures: int) -> None:
        self._guard.advance(phase="measure", form=form, pictures=pictures)

    def _metrics(
        self,
        models: Mapping[str, bytes],
        seen: Mapping[str, DetectionsById],
        gate_seen: Mapping[str, DetectionsById],
        latency: Mapping[str, dict[str, float]],
    ) -> dict[str, Any]:
        """By form: figures on the measured split, the same on the gate's split below "gate", bytes and time."""
        metrics: dict[str, Any] = {
            form: {
                "split": self._measured_split,
                **self._figures(seen[form], self._measured_split),
                "gate": {"split": self._gate_split, **self._figures(gate_seen[form], self._gate_split)},
                "bytes": len(model),
                "median_ms": latency[form]["1"],
                "latency_ms": latency[form],
            }
            for form, model in models.items()
        }
        metrics["int8"]["quantize"] = "ptq" if self._model.fine_tuned is None else "qat"
        return metrics

    def _figures(self, seen: DetectionsById, split: Split) -> dict[str, Any]:
        return measure.figures(self._request.truth(split), seen, self._request.manifest.image_size)

    def _check_files(self, models: Mapping[str, bytes]) -> None:
        """Stop at a file that is not worth running; it would only fail later and less clearly."""
        variables = self._model.keras_model.variables
        kernels = sum(int(np.prod(variable.shape)) for variable in variables if len(variable.shape) > 1)
        self.checks = gate.check_files(models, kernels, self._model.description)
        gate.require(self.checks)

    def _evidence(
        self, seen: Mapping[str, DetectionsById], metrics: Mapping[str, Any], layers: Sequence[LayerError]
    ) -> gate.Evidence:
        pictures = list(islice(self._request.pictures(self._gate_split), _PARITY_PICTURES))
        ids = [picture.image_id for picture in pictures]
        return gate.Evidence(
            classes=len(self._model.description.labels),
            reference=measure.keras_detections(self._model.keras_model, self._model.priors, pictures),
            seen={form: [found[image_id] for image_id in ids] for form, found in seen.items()},
            map50={form: row["gate"]["map50"] for form, row in metrics.items()},
            max_drop=self._request.spec.max_drop,
            layers=layers,
            is_fine_tuned=self._model.fine_tuned is not None,
        )

    def _illustrate(self, seen: dict[int, Detections], score: float) -> dict[str, bytes]:
        request = self._request
        return illustrate(
            Illustrated(
                labels=request.manifest.labels,
                truth=request.truth(self._measured_split),
                train_truth=request.truth("train"),
                detections=seen,
                pictures=lambda: request.pictures(self._measured_split),
                history=request.history,
                score=score,
                split=self._measured_split,
            )
        )

    def _some(self, split: Split, count: int) -> Iterable[NDArray[np.uint8]]:
        pictures: Iterable[StoredPicture] = islice(self._request.pictures(split), count)
        return (picture.rgb for picture in pictures)

    def _collect(self, metrics: dict[str, Any], summary: RunSummary) -> None:
        self._files |= {f"plots/{name}": content for name, content in summary.plots.items()}
        self._files["labels.txt"] = LabelMap(self._model.description.labels).to_labels_txt().encode()
        self._files["gate.json"] = _json([asdict(check) for check in self.checks])
        self._files["report.html"] = render_report(summary).encode()
        self._files["model_card.md"] = render_card(summary).encode()
        self._files["metrics.json"] = _json(metrics)


def first_split(manifest: Manifest, wanted: Sequence[Split]) -> Split:
    """The first of `wanted` that has a picture; `train` always has."""
    return next((split for split in wanted if manifest.examples(split) > 0), SPLITS[0])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
