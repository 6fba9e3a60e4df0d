"""What each ingredient of the recipe gives: one changed at a time, one fixed schedule, judged on the validation list.

Trains on the train list of one of `photo_sets.SETS` (`--set`; never on a test list) for `--steps` steps a row, each row
in a process of its own; appends a JSON line a row to `--out` and skips the rows that are there, so that it can be
stopped and continued. Run: `python tests/bench/ablation.py --store out/ablation --out ablation.jsonl all` (or some
rows), 3 to 8 minutes of one core a row; without rows the table of what is done is printed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.photo_sets import RACCOON, ROOT, SETS, photo_set, tested_photos

BATCH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training: `recipe` are fields of `Augmentation`, `constants` the names of modules and what they are set to.

    `plateau` is the share of the steps until which the rate stays at its peak, `frozen` that in which a published
    backbone does not learn; `mosaic_until` the share of the steps after which there are no mosaics; `assign` the name
    of a function of this file instead of the product's. With several `branches` what follows the frozen steps is done
    so often, and the mean of the averaged weights is judged besides.
    """

    side: int = 320
    resize: str = "stretch"
    model: str = "small"
    backbone: str = "conv"
    rate: float = 2e-3
    plateau: float = 0.5
    frozen: float = 0.15
    branches: int = 1
    precision: str = "float32"
    assign: str | None = None
    mosaic_until: float = 0.75
    recipe: dict[str, float] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)

    def job(self, photos: str) -> str:
        """The job that has the shards of a set as this row wants them."""
        return f"{photos}-{self.side}" + ("" if self.resize == "stretch" else f"-{self.resize}")


# Mosaics of half of the pictures, until three quarters of the steps: as the product has them.
MOSAIC: Final = {"mosaic": 0.5}

_SHARE: Final = "training.schedule.PUBLISHED_RATE"

# The average of about the last third of the steps.
_WIDE: Final = {"training.train_step.TAUGHT_EMA_RAMP": 4.0}

# The recipe of the product, and one thing changed in each of the others.
ROWS: Final[dict[str, Row]] = {
    "recipe": Row(),
    "no-mosaic": Row(recipe={"mosaic": 0}),
    "mosaic-to-the-end": Row(mosaic_until=1.0),
    "all-mosaic": Row(recipe={"mosaic": 1}),
    "no-colour": Row(recipe={"brightness": 0, "contrast": 0, "saturation": 0, "hue_deg": 0}),
    "no-zoom": Row(recipe={"zoom": 0, "aspect": 0, "translate": 0}),
    "no-flip": Row(recipe={"flip_horizontal": 0}),
    "turns": Row(recipe={"flip_vertical": 0.5, "quarter_turn": 0.5}),
    "turns-no-mosaic": Row(recipe={"mosaic": 0, "flip_vertical": 0.5, "quarter_turn": 0.5}),
    "rotate-10": Row(recipe={"rotate_deg": 10}),
    "centre-assignment": Row(assign="assign_centres"),
    "top-cells-5": Row(constants={"network.target_assignment.TOP_CELLS": 5}),
    "start-0.01": Row(constants={"network.detector.START_CELLS": -1}),
    "box-weight-1": Row(constants={"network.loss.BOX_WEIGHT": 1.0, "training.train_step.BOX_WEIGHT": 1.0}),
    "box-weight-2.5": Row(constants={"network.loss.BOX_WEIGHT": 2.5, "training.train_step.BOX_WEIGHT": 2.5}),
    "box-weight-10": Row(constants={"network.loss.BOX_WEIGHT": 10, "training.train_step.BOX_WEIGHT": 10}),
    "decay-0.005": Row(constants={"training.train_step.WEIGHT_DECAY": 0.005}),
    "rate-4e-3": Row(rate=4e-3),
    "constant-rate": Row(plateau=1.0),
    "cosine-from-the-start": Row(plateau=0.0),
    "strong-zoom": Row(recipe={"zoom": 0.6, "translate": 0.2}),
    "strong-zoom-cosine": Row(plateau=0.0, recipe={"zoom": 0.6, "translate": 0.2}),
    "256-px": Row(side=256),
    "416-px": Row(side=416),
    "512-px": Row(side=512),
    "nano": Row(model="nano"),
    "medium": Row(model="medium"),
    "letterbox": Row(resize="letterbox"),
    "bfloat16": Row(precision="mixed_bfloat16"),
    "quick-average": Row(precision="mixed_bfloat16", constants={"training.train_step.EMA_RAMP": 20.0}),
    **{
        name: replace(row, backbone="efficientnet_lite0")
        for name, row in {
            "lite0": Row(),
            "lite0-paste": Row(recipe={"paste": 0.5}),
            "lite0-never-frozen": Row(frozen=0),
            "lite0-branches": Row(branches=3),
            "lite0-paste-branches": Row(branches=3, recipe={"paste": 0.5}),
            "lite0-rate-1": Row(constants={_SHARE: 1.0}),
            "lite0-rate-0.1": Row(constants={_SHARE: 0.1}),
            "lite0-1e-3": Row(rate=1e-3),
            "lite0-slow-average": Row(constants={"training.train_step.TAUGHT_EMA_RAMP": 10.0}),
            "lite0-constant-rate": Row(plateau=1.0, constants=_WIDE),
            "lite0-paste-constant-rate": Row(plateau=1.0, constants=_WIDE, recipe={"paste": 0.5}),
            "lite0-192-constant-rate": Row(side=192, plateau=1.0, constants=_WIDE),
            "lite0-no-warmup": Row(constants={"training.schedule.WARMUP_STEPS": 1}),
            "lite0-strong-zoom": Row(recipe={"zoom": 0.6, "translate": 0.2}),
            "lite0-no-mosaic": Row(recipe={"mosaic": 0}),
            "lite0-mosaic-to-the-end": Row(mosaic_until=1.0),
            "lite0-192": Row(side=192, recipe={"paste": 0.5}),
            "lite0-192-unpasted": Row(side=192),
            "lite0-192-letterbox": Row(side=192, resize="letterbox"),
            "lite0-letterbox": Row(resize="letterbox"),
            "lite0-192-branches": Row(side=192, branches=3),
            "lite0-192-nano": Row(side=192, model="nano"),
            "lite0-192-frozen": Row(side=192, frozen=1),
            "lite0-224": Row(side=224, recipe={"paste": 0.5}),
            "lite0-256": Row(side=256),
            "lite0-416": Row(side=416),
        }.items()
    },
    **{
        name: replace(row, backbone="efficientnet_lite0_short")
        for name, row in {
            "short": Row(),
            "short-nano": Row(model="nano"),
            "short-192": Row(side=192),
            "short-192-paste": Row(side=192, recipe={"paste": 0.5}),
            "short-192-nano": Row(side=192, model="nano"),
            "short-192-nano-paste": Row(side=192, model="nano", recipe={"paste": 0.5}),
            "short-224": Row(side=224),
            "short-224-nano": Row(side=224, model="nano"),
        }.items()
    },
    **{
        name: replace(row, backbone="efficientnet_lite2")
        for name, row in {
            "lite2": Row(),
            "lite2-192": Row(side=192),
            "lite2-192-frozen": Row(side=192, frozen=1),
            "lite2-256": Row(side=256),
        }.items()
    },
}


def assign_centres(scores: Any, boxes: Any, *, true_boxes: Any, true_labels: Any, priors: Any) -> Any:
    """Hard targets without regard to predictions: the cells nearest to a box's centre, on the level of its size.

    Takes and gives what `targets.assign` does. A box belongs to the level whose prior's side is nearest to its own
    (in octaves) and to the nine cells there that are nearest to its centre; a cell wanted by several takes the
    smallest.
    """
    import tensorflow as tf

    from trainer.network.target_assignment import Targets, by_cell, keeps_cell

    del boxes
    is_true = true_labels >= 0
    centers = (true_boxes[..., :2] + true_boxes[..., 2:]) / 2
    sides = tf.sqrt(tf.maximum(tf.reduce_prod(true_boxes[..., 2:] - true_boxes[..., :2], -1), 1e-9))
    # Priors are 4 strides; a box of 4 to 8 strides belongs to its level.
    octave = tf.abs(tf.math.log(sides[..., None] / (1.4 * priors[:, 2])))
    own_level = octave <= tf.reduce_min(octave, -1, keepdims=True) + 1e-6
    distance = tf.reduce_sum(tf.square(centers[..., None, :] - priors[:, :2]), -1)
    nearness, cells = tf.math.top_k(tf.where(own_level & is_true[..., None], -distance, -1e9), 9)
    wanted = tf.where(nearness > -1e9, 1 / sides[..., None], -1.0)
    weights = tf.cast(keeps_cell(wanted, cells, len(priors)), tf.float32)
    scores = by_cell(weights, cells, tf.maximum(true_labels, 0), tf.shape(scores))
    return Targets(scores=scores, cells=cells, weights=weights, is_judged=tf.ones(tf.shape(scores)[:2], tf.bool))


def make_shards(store: str, photos: str, row: Row) -> None:
    """Have the shards of a set in the store, as a row wants them."""
    tested: set[str] = set()
    if photos.startswith("raccoon"):
        _submit(store, "raccoon-split", RACCOON, "--split", "70/10/20")
        tested = tested_photos(Path(store) / "jobs/raccoon-split/annotations_test.json")
    folder = photo_set(photos, Path(store).absolute() / "sets", tested)
    _submit(store, row.job(photos), folder, "--image-size", str(row.side), "--resize", row.resize)


def _submit(store: str, job: str, folder: Path, *options: str) -> None:
    if not (Path(store) / "jobs" / job / "manifest.json").exists():
        command = ["submit", str(folder), "--job", job, *options, "--store", store, "--no-train", "--local", "--wait"]
        subprocess.run([sys.executable, "-m", "producer", *command], check=True, cwd=ROOT)


def train_row(
    row: Row,
    *,
    photos: str,
    steps: int,
    seed: int,
    store: str,
    start: Path | None = None,
    looks: int = 3,
) -> Iterator[dict[str, Any]]:
    """Train, from the averaged weights of a checkpoint if given; `looks` times, equally apart, the figures on val."""
    import keras
    import numpy as np
    import tensorflow as tf

    from shared.jobs.manifest import Manifest
    from shared.jobs.paths import JobPaths
    from shared.specs.augmentation import Augmentation
    from shared.storage import Storage
    from trainer.data import batches, examples, shard_pictures
    from trainer.evaluation import coco_map, measure
    from trainer.network import detector, postprocess
    from trainer.training import schedule, train_step

    for name, value in row.constants.items():
        module, constant = name.rsplit(".", 1)
        setattr(import_module(f"trainer.{module}"), constant, value)
    if row.assign is not None:
        losses: Any = import_module("trainer.network.loss")
        losses.assign = globals()[row.assign]
    if row.constants.get("network.detector.START_CELLS") == -1:
        detector._start_logit = lambda *_: float(np.log(0.01 / 0.99))
    keras.utils.set_random_seed(seed)
    storage = Storage(store)
    manifest = Manifest.model_validate_json(storage.read(JobPaths(row.job(photos)).manifest))
    train, val = (
        examples.read_examples(examples.shard_urls(storage, manifest, [split]), row.side) for split in ("train", "val")
    )
    truth = shard_pictures.truth_from_store(storage, manifest, "val")
    priors, strategy = detector.make_priors(row.side), tf.distribute.get_strategy()
    build: Callable[[], Any] = lambda: _network(row, len(manifest.labels), start)  # noqa: E731
    stream = partial(batches.batches_from_memory, train, batch=BATCH, seed=seed)
    opening, rest = (Augmentation(**MOSAIC | row.recipe), Augmentation(**row.recipe | {"mosaic": 0.0}))
    learned = lambda: train_step.in_precision(row.precision, build)  # noqa: E731
    student = train_step.Learner(learned, priors, strategy, stream(recipe=opening).element_spec)
    judged = build()
    detect = postprocess.keras_detector(judged, priors)
    plan = schedule.Schedule(
        steps=steps,
        steps_per_epoch=len(train) // BATCH,
        peak_rate=row.rate,
        plateau=row.plateau,
        frozen=row.frozen,
    )
    plan = plan.forked(row.branches)
    times_s: list[float] = []
    is_opening: bool | None = None
    fork, means = None, []
    for number in range(plan.steps):
        if plan.begins_branch(number):
            fork = student.average() if fork is None else fork
            student.begin(fork)
        is_early = plan.place(number) < row.mosaic_until * plan.lap
        if is_early is not is_opening:
            is_opening, pictures = is_early, iter(stream(recipe=opening if is_early else rest, first_step=number))
        batch = next(pictures)
        began_s = time.perf_counter()
        share = 1.0 if row.backbone == "conv" else plan.published_share(number)
        sums = student.step(batch, rate=plan.rate(number), number=plan.count(number), published_share=share)
        times_s.append(time.perf_counter() - began_s)
        done = number + 1
        if plan.ends_branch(done):
            means.append(student.average())
        if done % (steps // looks) and done != plan.steps and not plan.ends_branch(done):
            continue
        figures: dict[str, Any] = {
            "step": done,
            "loss": round(sums.total, 3),
            "step_s": round(float(np.median(times_s)), 3),
        }
        state = student.state()
        judged_weights = {"average": state["average"]}
        if done == plan.steps:
            judged_weights["last"] = np.concatenate([state["weights"], state["statistics"]])
        if plan.ends_branch(done):
            judged_weights = {"branch": state["average"], **judged_weights, "average": np.mean(means, axis=0)}
        for name, weights in judged_weights.items():
            train_step.load_average(judged, weights)
            seen = coco_map.average_precision(truth, measure.detect_all(detect, val.shard_pictures(), batch=BATCH))
            figures[name] = {
                "map50": round(seen.map50, 4),
                "map": round(seen.map, 4),
                "ap50": {name: round(own["ap50"] or 0, 3) for name, own in seen.per_class.items()},
            }
        yield figures


def _network(row: Row, classes: int, start: Path | None) -> Any:
    import numpy as np

    from trainer.network.detector import build_model
    from trainer.training.train_step import load_average

    weights = "none" if row.backbone == "conv" else "imagenet"
    network = build_model(classes, row.side, row.model, backbone=row.backbone, weights=weights)  # type: ignore[arg-type]
    if start is not None:
        # Before the optimizer copies the weights: it would put its own copies back at the first step.
        load_average(network, np.load(start)["average"])
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", default=[], help="`all`, or some; none prints the table.")
    parser.add_argument("--set", default="bccd", choices=SETS, dest="photos")
    parser.add_argument("--store", default="out/ablation")
    parser.add_argument("--out", default="ablation.jsonl", type=Path)
    parser.add_argument("--steps", default=600, type=int)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--start", type=Path, help="A checkpoint of a run: begin with its averaged weights.")
    parser.add_argument("--rate-share", default=1.0, type=float, help="Of each row's rate.")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        do_row(asked)
    elif not asked.rows:
        print_table(asked.out)
    else:
        for name in ROWS if asked.rows == ["all"] else asked.rows:
            if not is_done(asked.out, name, asked.photos, asked.steps, asked.seed):
                make_shards(asked.store, asked.photos, ROWS[name])
                subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=False)


def do_row(asked: argparse.Namespace) -> None:
    """In a fresh process: TensorFlow's threads and the changed constants are set once a process."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import cv2
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(asked.threads)
    tf.config.threading.set_inter_op_parallelism_threads(asked.threads)
    cv2.setNumThreads(1)
    began_s = time.time()
    for figures in train_row(
        replace(ROWS[asked.only], rate=asked.rate_share * ROWS[asked.only].rate),
        photos=asked.photos,
        steps=asked.steps,
        seed=asked.seed,
        store=asked.store,
        start=asked.start,
    ):
        print(asked.only, json.dumps(figures), flush=True)
    line = {
        "row": asked.only,
        "set": asked.photos,
        "steps": asked.steps,
        "seed": asked.seed,
        "seconds": round(time.time() - began_s),
        **figures,
    }
    with asked.out.open("a") as out:
        out.write(json.dumps(line) + "\n")


def done(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def is_done(out: Path, *row: object) -> bool:
    return any((line["row"], line["set"], line["steps"], line["seed"]) == row for line in done(out))


def print_table(out: Path) -> None:
    """mAP50 and mAP of each row, of the averaged weights, and their distance from the recipe of the same length."""
    lines = done(out)
    base = {(line["set"], line["steps"], line["seed"]): line["average"] for line in lines if line["row"] == "recipe"}
    print(
        f"{'row':20}{'set':12}{'steps':>7}{'seed':>5}{'mAP50':>8}{'mAP':>8}{'':4}{'d50':>7}{'dmAP':>7}{'no EMA':>15}"
        f"{'s/step':>8}"
    )
    for line in lines:
        mine, last = line["average"], line["last"]
        theirs = base.get((line["set"], line["steps"], line["seed"]), mine)
        print(
            f"{line['row']:20}{line['set']:12}{line['steps']:7}{line['seed']:5}"
            f"{mine['map50']:8.3f}{mine['map']:8.3f}    "
            f"{mine['map50'] - theirs['map50']:+7.3f}{mine['map'] - theirs['map']:+7.3f}"
            f"{last['map50']:8.3f}{last['map']:7.3f}{line['step_s']:8.2f}"
        )


if __name__ == "__main__":
    main()
