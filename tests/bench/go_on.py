"""How soon a training that goes on from a trained network is where one from nothing ends, after 20 % more photos.

For each set: a network is trained from nothing on the first photos; then, on all of them, one from nothing and, for
each rate and length asked for, one that goes on from the first network, as `submit --from` does it. Sets: made-up
photos, and raccoons on the lists of `photo_sets` (skipped where they are absent, `VOC_RACCOON`). All in one process, on
one thread, judged on the set's validation photos. Run: `python tests/bench/go_on.py` (40 minutes of one core).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.ablation import Row, make_shards
from tests.bench.photo_sets import RACCOON, ROOT

# What 20 % are added to: 5 of 6 photos.
FIRST: Final = 5 / 6
MADE_UP: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """A training: its network's file, its steps, the validation mAP by step, and that of the weights it hands out."""

    file: Path
    steps: int
    seconds: float
    curve: dict[int, float]
    best: float

    def reaches(self, level: float) -> int | None:
        """The first step whose validation is as good as `level`."""
        return next((step for step, found in sorted(self.curve.items()) if found >= level), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", action="append", choices=("made-up", "raccoon"), dest="sets")
    parser.add_argument("--backbone", default="conv")
    parser.add_argument("--side", type=int, default=224, help="Of the pictures in pixels.")
    parser.add_argument("--seed", action="append", type=int, dest="seeds")
    parser.add_argument("--epochs", type=int, help="Of the trainings from nothing; default: the product's.")
    parser.add_argument("--rate", action="append", type=float, help="Peak rates to go on at; default: the product's.")
    parser.add_argument("--share", action="append", type=float, help="Of the steps from nothing; the product's.")
    asked = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for name in asked.sets or ("made-up", "raccoon"):
        if name == "raccoon" and not RACCOON.is_dir():
            print(f"{name}: skipped, {RACCOON} is absent")
            continue
        with tempfile.TemporaryDirectory() as store:
            jobs = make_jobs(name, store, asked.side)
            for seed in asked.seeds or (0,):
                compare(name, jobs, seed, store, asked)


def compare(name: str, jobs: tuple[str, str], seed: int, store: str, asked: argparse.Namespace) -> None:
    first, grown = jobs
    usual: dict[str, Any] = {"seed": seed, "backbone": asked.backbone, "epochs": asked.epochs}
    begun = learn(store, first, **usual)
    nothing = learn(store, grown, **usual)
    print(f"{name}, {asked.backbone}, {asked.side} px, seed {seed}", flush=True)
    print(f"{'':24}{'steps':>7}{'s':>7}{'mAP %':>7}{'last %':>8}{'first %':>9}  is as good at step", flush=True)
    told("first photos, new", begun, None)
    told("all photos, new", nothing, None)
    for share in asked.share or (None,):
        for rate in asked.rate or (None,):
            fixed = {"epochs": share and max(1, round(share * nothing.steps / per_epoch(store, grown)))}
            further = learn(store, grown, **usual | fixed, start=begun.file, from_=first, learning_rate=rate)
            label = f"goes on{f', {share:.2f}' if share else ''}{f', {rate:g}' if rate else ''}"
            told(label, further, nothing)


def told(label: str, learnt: Learnt, nothing: Learnt | None) -> None:
    line = f"{label:24}{learnt.steps:7}{learnt.seconds:7.0f}{100 * learnt.best:7.1f}"
    line += f"{100 * learnt.curve[max(learnt.curve)]:8.1f}{100 * learnt.curve[min(learnt.curve)]:9.1f}"
    if nothing is not None:
        step = learnt.reaches(nothing.best)
        line += f"  {step} ({step / nothing.steps:.2f} of its steps)" if step else "  never"
    print(line, flush=True)


def make_jobs(name: str, store: str, side: int) -> tuple[str, str]:
    """The shards of the first photos and of all of them, with the same validation photos."""
    whole = Path(store, "sets", name if name == "raccoon" else "made-up")
    if name == "raccoon":
        make_shards(store, "raccoon", Row(side=side))
    else:
        made = [sys.executable, "-m", "worker", "synthesize", str(whole), "--images", str(MADE_UP), "--seed", "7"]
        subprocess.run(made, check=True, cwd=ROOT, capture_output=True)
    first = Path(f"{whole}-first")
    shutil.copytree(whole, first)
    listed = first / "ImageSets/Main/train.txt"
    stems = listed.read_text().split()
    listed.write_text("".join(f"{stem}\n" for stem in stems[: round(FIRST * len(stems))]))
    for folder, job in ((first, "first"), (whole, "grown")):
        command = ["submit", str(folder), "--job", job, "--image-size", str(side), "--store", store, "--no-train"]
        subprocess.run([sys.executable, "-m", "producer", *command, "--local"], check=True, cwd=ROOT)
    return "first", "grown"


def per_epoch(store: str, job: str) -> int:
    """Steps of an epoch of a job."""
    from shared.jobs.manifest import Manifest
    from shared.jobs.paths import JobPaths
    from shared.storage import Storage

    manifest = Manifest.model_validate_json(Storage(store).read(JobPaths(job).manifest))
    return max(1, round(manifest.examples("train") / 8))


def learn(store: str, job: str, *, start: Path | None = None, from_: str = "", **asked: Any) -> Learnt:
    """Train on the shards of a job, as a trainer does it."""
    from producer.cli.weights import kept
    from shared.jobs.manifest import Manifest
    from shared.jobs.paths import JobPaths, RunPaths, labels_of
    from shared.leasing.guard import Unguarded
    from shared.specs.run import RunSpec
    from shared.storage import Storage
    from trainer.data.training_set import load_training_set
    from trainer.run import network_builder
    from trainer.training.loop import Training
    from trainer.training.strategy import make_strategy

    storage = Storage(store)
    manifest = Manifest.model_validate_json(storage.read(JobPaths(job).manifest))
    if start is not None:
        key = kept(start.read_bytes(), f"{from_}.keras", storage)
        storage.write(labels_of(key), "".join(f"{label}\n" for label in manifest.labels).encode())
        asked["start"] = key
    spec = RunSpec(run="bench", job=job, max_minutes=None, **asked)
    storage.remove_tree(RunPaths("bench").root)  # of the training before
    storage.write(RunPaths("bench").request, spec.to_json().encode())
    strategy, began_s = make_strategy(1), time.perf_counter()
    dataset = load_training_set(spec, manifest, storage=storage, batch=spec.batch, cache_mb=2048, shards=None)
    build = network_builder(spec, manifest, storage)
    training = Training(spec, dataset, strategy=strategy, storage=storage, guard=Unguarded(), build=build)
    trained = training.run()
    seconds = time.perf_counter() - began_s
    handle, name = tempfile.mkstemp(suffix=".keras", dir=store)
    os.close(handle)
    trained.model.save(name)
    curve = {row.step: row.val_map for row in trained.progress.rows if row.val_map is not None}
    progress = trained.progress
    best = progress.best_map if progress.best_map is not None else curve[max(curve)]
    return Learnt(file=Path(name), steps=progress.step, seconds=seconds, curve=curve, best=best)


if __name__ == "__main__":
    main()
