"""How soon a pretrained start is where a whole training from nothing ends: steps and seconds, on photos of raccoons.

Trains `conv` for all of its default steps, then `efficientnet_lite0` until its validation mAP is as high as the best of
the first one; both on the train list of `photo_sets`, judged on its 50 val photos, in one process on one thread. Skips
where the photos are absent (`VOC_RACCOON`). Run: `python tests/bench/head_start.py` (12 minutes of one core).
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.ablation import ROWS, make_shards, train_row
from tests.bench.photo_sets import RACCOON
from trainer.training.schedule import LEAST_PUBLISHED_STEPS, LEAST_STEPS

LOOKS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", default=1.0, type=float, help="Of the default steps.")
    asked = parser.parse_args()
    if not RACCOON.is_dir():
        print(f"skipped: {RACCOON} is absent")
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory() as store:
        make_shards(store, "raccoon", ROWS["recipe"])
        nothing = learn("recipe", round(asked.share * LEAST_STEPS), store, until=1.0)
        pretrained = learn("lite0", round(asked.share * LEAST_PUBLISHED_STEPS), store, until=nothing[2])
    for name, (steps, seconds, best) in {"from nothing": nothing, "pretrained": pretrained}.items():
        print(f"{name:14}{steps:6} steps{seconds:8.0f} s   mAP {100 * best:.1f} %")
    print(f"ratio: {nothing[0] / pretrained[0]:.1f} of the steps, {nothing[1] / pretrained[1]:.1f} of the seconds")


def learn(row: str, steps: int, store: str, until: float) -> tuple[int, float, float]:
    """Steps and seconds of training until the validation mAP was `until`, or at its best, and that mAP."""
    began_s, best = time.perf_counter(), (0, 0.0, 0.0)
    for figures in train_row(ROWS[row], photos="raccoon", steps=steps, seed=0, store=store, looks=LOOKS):
        reached = figures["average"]["map"]
        print(f"{row}: step {figures['step']} of {steps}, mAP {100 * reached:.1f} %", flush=True)
        if reached > best[2]:
            best = (figures["step"], time.perf_counter() - began_s, reached)
        if reached >= until:
            break
    return best


if __name__ == "__main__":
    main()
