"""Small made-up splits and what the report is given of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shared.jobs.manifest import Manifest, ManifestShard
from shared.specs.run import RunSpec
from trainer.data.examples import ShardPicture
from trainer.detections import Detections
from trainer.evaluation.measure import measure
from trainer.reporting.advice import AdviceFacts, advise
from trainer.reporting.figures import FigureInputs, Figures, make_figures
from trainer.reporting.job_facts import JobFacts
from trainer.reporting.report import RunSummary

SIDE = 320

# (place, class) of an object, and (place, class, score) of a detection: places are boxes of 40 px in a row.
Objects = Sequence[tuple[int, int]]
Seen = Sequence[tuple[int, int, float]]


def box(place: int, side: float = 40.0) -> list[float]:
    x, y = 45.0 * (place % 7), 45.0 * (place // 7)
    return [x, y, x + side, y + side]


def detections(seen: Seen, side: float = 40.0) -> Detections:
    rows = sorted(seen, key=lambda row: -row[2])
    return Detections(
        boxes=np.array([box(place, side) for place, _, _ in rows], np.float32).reshape(-1, 4),
        class_ids=np.array([class_id for _, class_id, _ in rows], np.int64),
        scores=np.array([score for _, _, score in rows], np.float32),
    )


def coco(pictures: Sequence[tuple[Objects, Seen]], labels: Sequence[str], side: float = 40.0) -> dict[str, Any]:
    """The COCO truth of pictures, whose ids count from 1."""
    rows = [
        {"image_id": at, "category_id": class_id, "bbox": [*box(place)[:2], side, side], "area": side * side}
        for at, (objects, _) in enumerate(pictures, start=1)
        for place, class_id in objects
    ]
    return {
        "images": [{"id": at, "width": SIDE, "height": SIDE} for at in range(1, len(pictures) + 1)],
        "annotations": [row | {"id": at, "iscrowd": 0, "ignore": 0} for at, row in enumerate(rows, start=1)],
        "categories": [{"id": at, "name": name} for at, name in enumerate(labels, start=1)],
    }


def look(
    pictures: Sequence[tuple[Objects, Seen]],
    labels: Sequence[str] = ("nine", "ten"),
    *,
    score: float = 0.5,
    split: str = "test",
    history: Sequence[Mapping[str, float | None]] = (),
    side: float = 40.0,
    names: Sequence[str] = (),
) -> Figures:
    """The figures of a split of such pictures; the training split is the same."""
    truth = coco(pictures, labels, side)
    rng = np.random.default_rng(0)
    stored = [
        ShardPicture(
            image_id=at,
            file_name=names[at - 1] if names else f"photos/{at}.jpg",
            rgb=np.asarray(rng.integers(80, 200, (8, 8, 3)), np.uint8).repeat(SIDE // 8, 0).repeat(SIDE // 8, 1),
        )
        for at in range(1, len(pictures) + 1)
    ]
    return make_figures(
        FigureInputs(
            labels=labels,
            truth=truth,
            train_truth=truth,
            detections={at: detections(seen, side) for at, (_, seen) in enumerate(pictures, start=1)},
            pictures=lambda: iter(stored),
            history=history,
            score=score,
            split=split,
            side_px=SIDE,
        )
    )


def manifest_of(labels: Sequence[str], *, learnt: Mapping[str, int] | None = None, **more: Any) -> Manifest:
    """A manifest in which every class has plenty of training objects, or `learnt`."""
    counts = dict.fromkeys(labels, 100) | dict(learnt or {})
    shard = ManifestShard(file="train-00000-of-00001.tfrecord", size_bytes=1, sha256="0", examples=50, objects=1)
    fields = {
        "job": "mine",
        "request_digest": "ab" * 32,
        "labels": tuple(labels),
        "image_size": SIDE,
        "resize": "stretch",
        "splits": dict.fromkeys(("train", "val", "test"), (shard,)),
        "failed": (),
        "counters": {},
        "class_counts": {"train": counts, "val": counts, "test": counts},
    }
    return Manifest.model_validate(fields | more)


def metrics_of(figures: Figures, **changes: Any) -> dict[str, Any]:
    """`metrics.json` of a split: both forms are the same, unless `changes` says otherwise of int8."""
    shown = figures.inputs
    row = measure(shown.truth, dict(shown.detections)).figures
    row |= {"split": shown.split, "best_score": shown.score, "bytes": 500_000, "median_ms": 2.0}
    row |= {"latency_ms": {"1": 2.0, "2": 1.5, "4": 1.2}, "gate": row | {"split": "val"}}
    rounded = row | {"quantize": "ptq"} | changes
    return {"float32": row, "int8": rounded}


def facts_of(
    figures: Figures,
    *,
    spec: Mapping[str, Any] | None = None,
    manifest: Manifest | None = None,
    split_rule: str = "",
    **int8: Any,
) -> AdviceFacts:
    """What the rules look at; `int8` changes figures of that form."""
    return AdviceFacts(
        spec=RunSpec.model_validate({"run": "mine", "job": "mine", **(spec or {})}),
        manifest=manifest or manifest_of(figures.inputs.labels),
        metrics=metrics_of(figures, **int8),
        figures=figures,
        split_rule=split_rule,
    )


def summary_of(figures: Figures, **changes: Any) -> RunSummary:
    """What the report is given of a run that passed."""
    facts = facts_of(figures)
    fields: dict[str, Any] = {
        "spec": facts.spec,
        "manifest": facts.manifest,
        "facts": JobFacts(job=None, lint=None),
        "metrics": facts.metrics,
        "checks": (),
        "layers": (),
        "figures": figures,
        "advice": advise(facts),
        "warnings": (),
        "exported": "",
        "timings": {"train": 12.0},
        "measured_split": figures.inputs.split,
        "gate_split": "val",
        "score_split": "val",
        "files": ("model_int8.tflite", "saved_model/saved_model.pb", "report.html"),
    }
    return RunSummary(**fields | changes)
