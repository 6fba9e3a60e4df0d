"""What ImageNet's weights are worth to 30 photos of raccoons: int8 mAP on 42 others, against training from nothing.

The 42 are those that `submit --split 70/10/20 --seed 0` tests on; 50 of the rest choose the weights, 30 are learned,
drawn anew by each seed. Both trainings are whole `submit … --local --wait` with the defaults but for `--backbone`; the
same call goes on where it was stopped. Skips where the photos are absent (`VOC_RACCOON`).
Run: `python tests/bench/few_photos.py --store out/few` (25 minutes of one core a seed).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.photo_sets import RACCOON, ROOT, cut_raccoon, tested_photos

BACKBONES: Final = ("efficientnet_lite0", "conv", "efficientnet_lite0_short", "efficientnet_lite2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default=Path("out/few"), type=Path)
    parser.add_argument("--learned", default=30, type=int)
    parser.add_argument("--seeds", default=[0, 1, 2], type=int, nargs="+")
    parser.add_argument("--backbones", default=BACKBONES[:2], choices=BACKBONES, nargs="+")
    parser.add_argument("more", nargs="*", help="After --: more options of `submit`.")
    asked = parser.parse_args()
    if not RACCOON.is_dir():
        print(f"skipped: {RACCOON} is absent")
        return
    store = asked.store.absolute()
    tested = photos_of_the_test(store)
    found: dict[str, list[dict[str, Any]]] = {backbone: [] for backbone in asked.backbones}
    for seed in asked.seeds:
        folder = make_folder(store, asked.learned, tested, seed)
        for backbone in asked.backbones:
            figures = train(store, folder, backbone, asked.more)
            found[backbone].append(figures)
            tell(f"{backbone}, seed {seed}", [figures])
    for backbone, rows in found.items():
        tell(f"{backbone}, mean", rows)


def photos_of_the_test(store: Path) -> set[str]:
    """File names of the test photos of the split of seed 0."""
    truth = store / "jobs/raccoon-split/annotations_test.json"
    if not truth.exists():
        command = ["submit", str(RACCOON), "--job", "raccoon-split", "--split", "70/10/20", "--seed", "0", "--no-train"]
        run(store, command)
    return tested_photos(truth)


def make_folder(store: Path, learned: int, tested: set[str], seed: int) -> Path:
    """A VOC folder with lists of `learned` photos, the 50 that judge and the tested ones."""
    folder = store / "sets" / f"raccoon-{learned}-{seed}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        cut_raccoon(part, learned, tested, seed)
        for name in sorted(tested):
            stem = Path(name).stem
            shutil.copy(RACCOON / "images" / name, part / "JPEGImages")
            shutil.copy(RACCOON / "annotations" / f"{stem}.xml", part / "Annotations")
        listed = "".join(f"{Path(name).stem}\n" for name in sorted(tested))
        (part / "ImageSets/Main/test.txt").write_text(listed)
        part.rename(folder)
    return folder


def train(store: Path, folder: Path, backbone: str, more: list[str]) -> dict[str, Any]:
    """Train to the end, and the figures of int8, with the steps and seconds that it took."""
    job = f"{folder.name}-{backbone.replace('_', '-')}"
    if not (store / "runs" / job / "metrics.json").exists():
        run(store, ["submit", str(folder), "--job", job, "--backbone", backbone, *more])
    metrics, facts = (json.loads((store / "runs" / job / name).read_text()) for name in ("metrics.json", "run.json"))
    return {**metrics["int8"], "steps": facts["training"]["steps"], "seconds": facts["seconds"]["train"]}


def run(store: Path, command: list[str]) -> None:
    whole = [sys.executable, "-m", "producer", *command, "--store", str(store), "--local", "--wait"]
    # Not checked: a run that the gate refused has its figures too.
    subprocess.run(whole, check=False, cwd=ROOT, env={**os.environ, "VOC_THREADS": "1"}, stdout=subprocess.DEVNULL)


def tell(label: str, rows: list[dict[str, Any]]) -> None:
    """A line with the means of these trainings."""
    mean = {name: statistics.mean(row[name] for row in rows) for name in ("map50", "map", "steps", "seconds")}
    print(
        f"{label:28}{mean['steps']:7.0f} steps{mean['seconds']:7.0f} s   int8 mAP50 {100 * mean['map50']:.1f} %"
        f"   mAP {100 * mean['map']:.1f} %",
        flush=True,
    )


if __name__ == "__main__":
    main()
