"""Trained weights -> everything a run hands out: models, figures, gate, plots, report, card.

Combines export, measurement, gate, plots and report for `trainer/run.py` and `trainer export`. Everything is written
before the gate may refuse it, so that the report of a refused model shows why.
"""

import json
import logging
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from shared import __version__
from shared.jobs.identity import read_note
from shared.jobs.job import Split
from shared.jobs.labels import LabelMap
from shared.jobs.manifest import Manifest
from shared.jobs.paths import RunPaths
from shared.leasing.guard import Guard
from shared.model.description import ModelDescription
from shared.specs.run import RunSpec
from shared.storage import Storage
from trainer.data.shard_pictures import Pictures, Truth
from trainer.detections import DetectionsById
from trainer.evaluation.detections_file import detections_file, read_detections
from trainer.evaluation.forms import JudgingSplits, MeasuredForms, measure_forms
from trainer.evaluation.latency import decode_ms, latency_ms
from trainer.evaluation.measure import detect_all
from trainer.evaluation.resamples_file import resamples_file
from trainer.inference.detector import Detector
from trainer.network.efficientnet_lite import TEACHER, origin_of
from trainer.network.postprocess import keras_detector
from trainer.reporting.advice import AdviceFacts, advise
from trainer.reporting.figures import FigureInputs, Figures, draw_plots, make_figures
from trainer.reporting.history import ended_early, exported_epoch, exported_mean, read_history
from trainer.reporting.job_facts import learned_before, read_job_facts
from trainer.reporting.report import RunSummary, render_card, render_report
from trainer.tflite import gate, raw_gate
from trainer.tflite.convert import (
    CALIBRATION_IMAGES,
    DECODING,
    FORMS,
    RAW,
    TrainedModel,
    export_forms,
    forms_of,
    save_keras,
)
from trainer.tflite.layer_error import LayerError, layer_errors
from trainer.tflite.metadata import with_best_score

logger = logging.getLogger(__name__)

# On how many pictures Keras and float32 are compared one by one, and on how many layers are traced.
_PARITY_PICTURES: Final = 16
_TRACED_PICTURES: Final = 4

# The beginnings of the names of files that hold weights.
_MODELS: Final = ("model_float", "model_dynamic", "model_int8", "model.keras", "model_qat.keras", "saved_model")

# The other files that are written, besides the models and plots.
_WRITTEN_LAST: Final = ("labels.txt", "gate.json", "report.html", "model_card.md", "metrics.json")

# The licence of what this project adds; whoever trains a model decides on the licence of its weights.
_LICENCE: Final = "Apache-2.0"


@contextmanager
def timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the seconds that a stage takes."""
    start = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start, 2)


@dataclass(slots=True, kw_only=True)
class Release:
    """What is released, and the results that each phase leaves for the next.

    `keras_model` is as `build_model` makes it, with the weights to ship. `pictures` streams a split anew at each call;
    `truth` gives its COCO form with categories. `storage` gets all files below the run's folder; the job's `job.json`
    and the run's `results.csv` are read for the report. `guard` is told of every phase, and asked before anything is
    written. `fine_tuned`, from `trainer/training/qat.py`, is what int8 is made from, if given. `timings` are the
    seconds of earlier stages. `best_epoch` is the epoch of the weights, 0 if not known. `step` is the step of the
    checkpoint if a person asked for one: these are not the weights that a finished run ended with.
    """

    spec: RunSpec
    manifest: Manifest
    keras_model: keras.Model
    pictures: Pictures
    truth: Truth
    storage: Storage
    guard: Guard
    fine_tuned: keras.Model | None = None
    best_epoch: int = 0
    step: int | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    _seconds: dict[str, float] = field(init=False)
    _files: dict[str, bytes] = field(init=False, default_factory=dict)
    _checks: list[gate.GateCheck] = field(init=False)
    _splits: JudgingSplits = field(init=False)
    _advice: list[str] = field(init=False, default_factory=list)
    _exported: str = field(init=False, default="")
    _model: TrainedModel = field(init=False)

    def __post_init__(self) -> None:
        self._seconds = dict(self.timings)
        self._splits = JudgingSplits.of(self.manifest, self.truth)
        description = ModelDescription(
            name=self.spec.run,
            version=__version__,
            licence=_LICENCE + self._origin(),
            labels=self.manifest.labels,
            image_size=self.manifest.image_size,
            resize=self.manifest.resize,
            data_digest=self.manifest.request_digest,
        )
        self._model = TrainedModel(keras_model=self.keras_model, fine_tuned=self.fine_tuned, description=description)

    def _origin(self) -> str:
        """The origin of a backbone that somebody else has trained or taught; "" for our own."""
        if self.spec.distil:
            return f"; its backbone learned from: {origin_of(TEACHER)}"
        origin = origin_of(self.spec.backbone)
        return f"; backbone: {origin}" if origin else ""

    def run(self) -> dict[str, Any]:
        """Export, measure, judge and draw; write everything below the run's folder.

        Returns:
            The content of `metrics.json`.

        Raises:
            ExportError: The gate refused the model. If its files could be run, everything has been written by then,
                except if the run is finished: then its files stay, and only a report is written into `refused/`.
        """
        metrics = self._make()
        self.guard.before_publish()
        paths = RunPaths(self.spec.run)
        root, files = paths.root, self._files
        is_refused = not all(check.is_ok for check in self._checks)
        is_finished = read_note(self.storage, paths.run, self.spec.incarnation) is not None
        if is_refused and is_finished:
            root, files = f"{root}/refused", {name: files[name] for name in files if not name.startswith(_MODELS)}
        elif self.step is not None and is_finished:
            files = {name: content for name, content in files.items() if not name.endswith(".keras")}
        with self._timed("write"):
            if root == paths.root:
                self._remove_stale()
            for name, content in files.items():  # metrics.json is the last
                self.guard.require_wanted()
                self.storage.write(f"{root}/{name}", content)
        logger.info("run_released", extra={"run": self.spec.run, "int8_map50": metrics["int8"]["map50"]})
        gate.require(self._checks, self.storage.url(f"{root}/report.html"))
        return metrics

    def _remove_stale(self) -> None:
        """Remove the models of an earlier export that this one does not hand out: their weights may differ."""
        handed_out = forms_of(self.spec.nms)
        for form in {*forms_of("both")} - {*handed_out}:
            self.guard.require_wanted()
            self.storage.remove(f"{RunPaths(self.spec.run).root}/model_{form}.tflite")

    @property
    def warnings(self) -> list[str]:
        """What a person should know about a model that passed the gate, one line each."""
        # Named by the form alone: "accuracy kept" would claim that this is known.
        return [f"{check.name.partition(':')[0]}: {check.warning}" for check in self._checks if check.warning]

    @property
    def notes(self) -> dict[str, list[str] | str]:
        """What `run.json` keeps for a person.

        `warnings`; `advice`, what to do next; `exported`, which epoch the weights are from unless it is the last one,
        and what ended the training early.
        """
        return {"warnings": self.warnings, "advice": self._advice, "exported": self._exported}

    def _make(self) -> dict[str, Any]:
        """Make all files in memory; returns the metrics."""
        with self._timed("export"):
            models = self._export()
        self._check_files(models)
        with self._timed("measure"):
            measured = self._measure(models)
        models = self._with_best_scores(models, measured.best_scores)
        self._keep_detections(measured.seen[self._splits.measured]["int8"])
        with self._timed("latency"):
            metrics = self._metrics(models, measured)
        with self._timed("gate"):
            layers = layer_errors(models["float32"], models["int8"], self._some(self._splits.gate, _TRACED_PICTURES))
            self._checks += gate.check_detections(self._evidence(measured.seen[self._splits.gate], metrics, layers))
            self._checks += raw_gate.check_raw_figures({form: row["gate"] for form, row in metrics.items()}, RAW)
        with self._timed("report"):
            figures = self._figures(measured.seen[self._splits.measured]["int8"], measured.best_scores["int8"])
            weights = self._weights(figures)
            best = "" if weights else self._best_validation(figures, metrics["int8"]["gate"]["objects"])
            stopped = ended_early(self.spec, figures.inputs.history)
            self._exported = "; ".join(filter(None, (weights or best, stopped)))
            facts = read_job_facts(self.storage, self.spec.job)
            asked: dict[str, Any] = {"spec": self.spec, "manifest": self.manifest, "exported": best}
            asked |= {"splits": self._splits, "learned": learned_before(self.storage, self.spec)}
            self._advice = advise(AdviceFacts(metrics=metrics, figures=figures, split_rule=facts.split_rule, **asked))
            self._files |= {f"plots/{name}": content for name, content in draw_plots(figures).items()}
        summary = RunSummary(
            spec=self.spec,
            manifest=self.manifest,
            facts=facts,
            metrics=metrics,
            checks=self._checks,
            layers=layers,
            figures=figures,
            advice=self._advice,
            warnings=self.warnings,
            exported=self._exported,
            timings=self._seconds,
            measured_split=self._splits.measured,
            gate_split=self._splits.gate,
            score_split=self._splits.score,
            files=[*self._files, *_WRITTEN_LAST],
        )
        self._collect(metrics, summary)
        return metrics

    def _weights(self, figures: Figures) -> str:
        """Which weights these are if they are not from a single validation; otherwise ""."""
        if self.step is not None:
            return f"the checkpoint of step {self.step} was exported"
        return exported_mean(figures.inputs.history, self.best_epoch)

    def _best_validation(self, figures: Figures, objects: int) -> str:
        """Which validation these weights are from."""
        judged = objects if self._splits.gate == "val" else None
        return exported_epoch(figures.inputs.history, self.best_epoch, judged)

    def _keep_detections(self, seen: DetectionsById) -> None:
        """Keep what int8 saw in the measured split, and its figures on resamples, for comparisons with other runs."""
        split, manifest = self._splits.measured, self.manifest
        facts: dict[str, Any] = {"labels": manifest.labels, "image_size": manifest.image_size}
        facts |= {"run": self.spec.run, "form": "int8", "split": split, "resize": manifest.resize}
        name = f"detections_{split}.json"
        self._files[name] = detections_file(self.truth(split), seen, **facts)
        self._files[f"resamples_{split}.json"] = resamples_file(read_detections(self._files[name], name))

    def _timed(self, stage: str) -> AbstractContextManager[None]:
        """Note the seconds that `stage` takes, and tell the guard that it began."""
        self.guard.advance(phase=stage)
        return timed(self._seconds, stage)

    def _export(self) -> Mapping[str, bytes]:
        calibration = lambda: self._some("train", CALIBRATION_IMAGES)  # noqa: E731 - converted more than once
        with tempfile.TemporaryDirectory(prefix="voc-release-") as folder:
            save_keras(self._model, Path(folder))
            for path in sorted(Path(folder).rglob("*")):
                if path.is_file():
                    self._files[path.relative_to(folder).as_posix()] = path.read_bytes()
        advance = lambda form: self.guard.advance(phase="export", form=form)  # noqa: E731
        forms = export_forms(self._model, calibration, advance, is_raw=self.spec.nms != "inside")
        self._keep_models(forms)
        return forms

    def _keep_models(self, models: Mapping[str, bytes]) -> None:
        """Keep the forms that are asked for, to be handed out; the others are only for comparison."""
        asked = forms_of(self.spec.nms)
        self._files |= {f"model_{form}.tflite": content for form, content in models.items() if form in asked}

    def _measure(self, models: Mapping[str, bytes]) -> MeasuredForms:
        detectors = {form: Detector(model, is_ours=True) for form, model in models.items()}
        classes = len(self.manifest.labels)
        return measure_forms(detectors, self._splits, self.pictures, self.truth, classes, self.guard.advance)

    def _metrics(self, models: Mapping[str, bytes], measured: MeasuredForms) -> dict[str, Any]:
        """The metrics by form: those in `measured`, size in bytes and times."""
        picture = next(iter(self.pictures(self._splits.measured))).rgb
        latency = latency_ms(models, picture, lambda: self.guard.advance(phase="latency"))
        metrics = measured.metrics()
        for form, model in models.items():
            metrics[form] |= {"bytes": len(model), "median_ms": latency[form]["1"], "latency_ms": latency[form]}
        for form, model in _raw(models).items():
            metrics[form]["decode_ms"] = decode_ms(Detector(model, is_ours=True), picture)
        metrics["int8"]["quantize"] = "ptq" if self.fine_tuned is None else "qat"
        return metrics

    def _with_best_scores(self, models: Mapping[str, bytes], scores: Mapping[str, float]) -> Mapping[str, bytes]:
        """The models with their best thresholds written into them, checked once more."""
        scored = {form: with_best_score(model, scores[form]) for form, model in models.items()}
        self._keep_models(scored)
        self._check_files(scored)
        return scored

    def _check_files(self, models: Mapping[str, bytes]) -> None:
        """Refuse files that are not worth running; they would only fail later and less clearly."""
        variables = self.keras_model.variables
        kernels = sum(int(np.prod(variable.shape)) for variable in variables if len(variable.shape) > 1)
        whole: dict[str, bytes] = {form: models[form] for form in FORMS}
        self._checks = gate.check_files(whole, kernels, self._model.description)
        self._checks += raw_gate.check_raw_files(_raw(models), self._model.description, DECODING)
        gate.require(self._checks)

    def _evidence(
        self, seen: Mapping[str, DetectionsById], metrics: Mapping[str, Any], layers: Sequence[LayerError]
    ) -> gate.Evidence:
        pictures = list(islice(self.pictures(self._splits.gate), _PARITY_PICTURES))
        ids = [picture.image_id for picture in pictures]
        return gate.Evidence(
            classes=len(self.manifest.labels),
            reference=list(detect_all(keras_detector(self.keras_model, self._model.priors), pictures).values()),
            seen={form: [seen[form][image_id] for image_id in ids] for form in FORMS},
            judged={form: row["gate"] for form, row in metrics.items()},
            max_drop=self.spec.max_drop,
            layers=layers,
            can_fine_tune=self.spec.backbone == "conv" and self.fine_tuned is None,
        )

    def _figures(self, seen: DetectionsById, score: float) -> Figures:
        return make_figures(
            FigureInputs(
                labels=self.manifest.labels,
                truth=self.truth(self._splits.measured),
                train_truth=self.truth("train"),
                detections=seen,
                pictures=lambda: self.pictures(self._splits.measured),
                history=read_history(self.storage, self.spec.run),
                score=score,
                split=self._splits.measured,
                side_px=self.manifest.image_size,
            )
        )

    def _some(self, split: Split, count: int) -> Iterable[NDArray[np.uint8]]:
        return (picture.rgb for picture in islice(self.pictures(split), count))

    def _collect(self, metrics: dict[str, Any], summary: RunSummary) -> None:
        self._files["labels.txt"] = LabelMap(self.manifest.labels).to_labels_txt().encode()
        self._files["gate.json"] = _json([asdict(check) for check in self._checks])
        self._files["report.html"] = render_report(summary).encode()
        self._files["model_card.md"] = render_card(summary).encode()
        self._files["metrics.json"] = _json(metrics)


def _raw(models: Mapping[str, bytes]) -> dict[str, bytes]:
    """The models without suppression."""
    return {form: model for form, model in models.items() if form.endswith(RAW)}


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
