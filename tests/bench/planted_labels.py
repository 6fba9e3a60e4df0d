"""Wrong labels planted in a set, and how many of them an audit names first; cleanlab beside it on the same detections.

Plants (`tests/bench/planted.py`), has the product audit the copy (`voc2tflite audit`, three folds) and prints for each
kind the precision at k = number planted and the AUROC. `pip install cleanlab` for the comparison: its scores are shown
for the detections' own scores and for calibrated ones, as its thresholds want probabilities. Run:
`python tests/bench/planted_labels.py --out out/planted shapes raccoon bccd -- --epochs 20`; 5 to 15 minutes of one
core a set at `--image-size 160`. Photos of the made-up set are made; the others are looked for as the tests do.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.jobs.job import SPLITS
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.bench.photo_sets import BCCD, RACCOON, ROOT
from tests.bench.planted import Kind, Planted, plant
from trainer.audit.calibration import learn_trust
from trainer.audit.fold_detections import read_folds
from trainer.audit.label_errors import find_label_errors
from trainer.audit.matching import match
from trainer.audit.photo_frames import photo_frames
from trainer.audit.photos import AuditedPhoto
from trainer.detections import iou_matrix
from trainer.evaluation.curves import HIT_IOU

FOLDS: Final = 3
# Small sets need more of their boxes spoiled, so that there is something to count.
SHARES: Final = {"shapes": 0.1, "bccd": 0.1, "raccoon": 0.2}
MADE_UP: Final = 480


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A doubt about photo `photo`: about its marked box `at`, or (None) about a `box` that nobody marked."""

    photo: int
    at: int | None
    box: Sequence[float] | None
    score: float


def audited(name: str, out: Path, image_size: int, options: Sequence[str]) -> tuple[list[AuditedPhoto], Manifest]:
    """The photos of a spoiled set with what models see that never learned from them."""
    store, job = str(out / "store"), name
    common = ["--local", "--wait", "--yes", "--store", store]
    run("submit", str(out / name), "--job", job, "--image-size", str(image_size), "--no-train", *common)
    run("audit", job, "--folds", str(FOLDS), *options, *common)
    storage = Storage(store)
    manifest = Manifest.model_validate_json(storage.read(JobPaths(job).manifest))
    folds = tuple(f"{job}.fold-{fold}-of-{FOLDS}" for fold in range(1, FOLDS + 1))
    count = sum(manifest.examples(split) for split in SPLITS)
    seen = read_folds(storage, RunSpec(run=f"{job}.audit-{FOLDS}", job=job, folds=FOLDS, audits=folds), count)
    frames, _ = photo_frames(manifest, storage, seen)
    facts = ("file_name", "width", "height", "marked", "seen")
    return [AuditedPhoto(**{name: getattr(frame, name) for name in facts}) for frame in frames], manifest


def run(*command: str) -> None:
    subprocess.run([sys.executable, "-m", "producer", *command], check=True, cwd=ROOT)


def spoiled(name: str, out: Path) -> list[Planted]:
    """What was planted in the copy of a set below `out`, made if it is absent."""
    notes = out / f"{name}.json"
    if not notes.exists():
        folder = {"bccd": BCCD, "raccoon": RACCOON}.get(name, out / "made-up")
        if name == "shapes" and not folder.exists():
            command = [sys.executable, "-m", "worker", "synthesize", str(folder), "--images", str(MADE_UP)]
            subprocess.run(command, check=True, cwd=ROOT)
        kinds = [kind for kind in get_args(Kind) if (name, kind) != ("raccoon", "wrong_class")]
        planted = plant(folder, out / name, share=SHARES[name], seed=0, kinds=kinds)
        notes.write_text(json.dumps([asdict(each) for each in planted]))
    return [Planted(**{**row, "box": tuple(row["box"])}) for row in json.loads(notes.read_text())]


class Truth:
    """Which marked boxes of the photos were spoiled, and which boxes are gone."""

    def __init__(self, photos: Sequence[AuditedPhoto], planted: Sequence[Planted]) -> None:
        """Find the planted labels among those that were read."""
        self.photos = photos
        place = {Path(photo.file_name).stem: number for number, photo in enumerate(photos)}
        self.wrong: dict[tuple[int, int], Kind] = {}
        self.gone: list[tuple[int, Sequence[float]]] = []
        for each in planted:
            number = place[each.stem]
            if each.kind == "missing":
                self.gone.append((number, each.box))
            else:
                self.wrong[number, int(_ious(each.box, photos[number].marked.boxes).argmax())] = each.kind

    def count(self, kind: Kind) -> int:
        """How many labels of a kind were planted."""
        return len(self.gone) if kind == "missing" else list(self.wrong.values()).count(kind)

    def is_hit(self, doubt: Doubt, kind: Kind) -> bool:
        """Whether a doubt is about a label that was planted so."""
        if doubt.at is not None:
            return self.wrong.get((doubt.photo, doubt.at)) == kind
        gone = [box for number, box in self.gone if number == doubt.photo]
        return bool(gone) and bool((_ious(doubt.box or (), np.array(gone, np.float32)) >= HIT_IOU).any())

    def auroc(self, doubts: Sequence[Doubt], kind: Kind) -> float:
        """Planted labels of a kind against right ones; where boxes are missing, photos against photos."""
        best: dict[Any, float] = {}
        for doubt in doubts:
            key: Any = doubt.photo if kind == "missing" else (doubt.photo, doubt.at)
            best[key] = max(best.get(key, -np.inf), doubt.score)
        least = min(best.values(), default=0.0) - 1
        if kind == "missing":
            bad = {number for number, _ in self.gone}
            keys: Sequence[Any] = range(len(self.photos))
            return auroc(
                [best.get(key, least) for key in bad], [best.get(key, least) for key in keys if key not in bad]
            )
        boxes = [(number, at) for number, photo in enumerate(self.photos) for at in range(len(photo.marked.class_ids))]
        positives = [best.get(key, least) for key in boxes if self.wrong.get(key) == kind]
        return auroc(positives, [best.get(key, least) for key in boxes if key not in self.wrong])


def _ious(box: Sequence[float], boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    ious: NDArray[np.float32] = iou_matrix(np.array([box], np.float32), boxes)[0]
    return ious


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """The chance that a positive is above a negative, ties counting half (Mann & Whitney)."""
    both = np.array([*positives, *negatives])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse][: len(positives)]
    return float((ranks.sum() - len(positives) * (len(positives) + 1) / 2) / (len(positives) * len(negatives)))


def our_doubts(photos: Sequence[AuditedPhoto], labels: Sequence[str]) -> Callable[[Kind], list[Doubt]]:
    """Our findings of a kind, surest first."""
    place = {photo.file_name: number for number, photo in enumerate(photos)}
    found = find_label_errors(photos, labels)

    def of(kind: Kind) -> list[Doubt]:
        return [
            Doubt(photo=place[each.file_name], at=each.object_index, box=each.proposed_box, score=each.score)
            for each in found
            if each.kind == kind
        ]

    return of


def cleanlab_doubts(photos: Sequence[AuditedPhoto], classes: int, *, is_calibrated: bool) -> dict[Kind, list[Doubt]]:
    """cleanlab's box scores as doubts of a kind, surest first; a made-up box is badly located to it."""
    rank: Any = import_module("cleanlab.object_detection.rank")

    trust = learn_trust([match(photo) for photo in photos]) if is_calibrated else lambda scores: scores
    labels = [{"bboxes": one.marked.boxes.astype(float), "labels": one.marked.class_ids - 1} for one in photos]
    predictions = []
    for one in photos:
        rows = np.concatenate([one.seen.boxes, trust(one.seen.scores)[:, None]], axis=1).astype(float)
        by_class = np.empty(classes, object)
        for class_id in range(classes):
            by_class[class_id] = rows[one.seen.class_ids == class_id + 1]
        predictions.append(by_class)
    given = {"labels": labels, "predictions": predictions}
    badly, swapped, overlooked = (
        score(**given)
        for score in (
            rank.compute_badloc_box_scores,
            rank.compute_swap_box_scores,
            rank.compute_overlooked_box_scores,
        )
    )

    def of_boxes(scores: Sequence[Any]) -> list[Doubt]:
        return sorted_doubts(
            Doubt(photo=number, at=at, box=None, score=-float(np.nan_to_num(score, nan=1.0)))
            for number, row in enumerate(scores)
            for at, score in enumerate(row)
        )

    missing = sorted_doubts(
        Doubt(photo=number, at=None, box=row[:4].tolist(), score=-float(score))
        for number, scores in enumerate(overlooked)
        for row, score in zip(np.concatenate(list(predictions[number])), scores, strict=True)
        if not np.isnan(score)
    )
    located = of_boxes(badly)
    return {"missing": missing, "misplaced": located, "made_up": located, "wrong_class": of_boxes(swapped)}


def sorted_doubts(doubts: Any) -> list[Doubt]:
    return sorted(doubts, key=lambda each: -each.score)


def precision(truth: Truth, doubts: Sequence[Doubt], kind: Kind) -> float:
    """The share of the first k doubts that are planted, k being how many were."""
    count = truth.count(kind)
    return sum(truth.is_hit(doubt, kind) for doubt in doubts[:count]) / count


def report(name: str, photos: Sequence[AuditedPhoto], manifest: Manifest, planted: Sequence[Planted]) -> None:
    """Print the figures of a set."""
    truth, ours = Truth(photos, planted), our_doubts(photos, manifest.labels)
    theirs: list[dict[Kind, list[Doubt]]] = []
    try:
        theirs = [cleanlab_doubts(photos, len(manifest.labels), is_calibrated=at) for at in (False, True)]
    except ImportError:
        print("without cleanlab (pip install cleanlab)")
    boxes = sum(len(photo.marked.class_ids) for photo in photos)
    print(f"{name}: {len(photos)} photos, {boxes} boxes, {len(planted)} wrong labels planted")
    heads = ("kind", "planted", "ours P@k", "AUROC", "cleanlab P@k", "AUROC", "calibrated", "AUROC")
    print("  {:12}{:>8}{:>10}{:>7}{:>14}{:>7}{:>12}{:>7}".format(*heads))
    means = []
    for kind in get_args(Kind):
        if not truth.count(kind):
            continue
        cells = [precision(truth, ours(kind), kind), truth.auroc(ours(kind), kind)]
        for each in theirs:
            cells += [precision(truth, each[kind], kind), truth.auroc(each[kind], kind)]
        means.append(cells)
        print(f"  {kind:12}{truth.count(kind):8}" + _columns(cells))
    print(f"  {'mean':20}" + _columns(np.mean(means, axis=0).tolist()))


def _columns(cells: Sequence[float]) -> str:
    return "".join(f"{cell:{width}.3f}" for cell, width in zip(cells, (10, 7, 14, 7, 12, 7), strict=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=list(SHARES))
    parser.add_argument("--out", default=Path("out/planted"), type=Path)
    parser.add_argument("--image-size", default=160, type=int)
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    asked = parser.parse_args(own.split())
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.sets:
        planted = spoiled(name, asked.out.absolute())
        photos, manifest = audited(name, asked.out.absolute(), asked.image_size, options.split())
        report(name, photos, manifest, planted)


if __name__ == "__main__":
    main()
