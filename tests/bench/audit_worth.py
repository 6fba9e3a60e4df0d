"""What an audit is worth: the share of the mAP lost to missing boxes that comes back when proposals are checked.

Of a set's learned photos a fifth of the boxes is removed (seeded). Three models of the same length are trained: on the
true labels, on those with holes, and on those with holes after an audit (`voc2tflite audit`, three folds), whose first
k findings of kind `missing`, k being how many boxes were removed, are answered by an oracle: where a removed box was
meant, it is given back. All are judged on photos whose labels are true and which none of them saw. What the audit cost
is told in trainings: the seconds from its request to its end against those of the run on the same photos. Run:
`python tests/bench/audit_worth.py shapes raccoon --seed 0 --seed 1 -- --epochs 30` (10 to 20 minutes of one core a set
and seed). Raccoon is looked for as the tests do (`VOC_RACCOON`).
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from lxml import etree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from shared.audit.findings import AuditFindings
from tests.bench.photo_sets import RACCOON, ROOT
from tests.bench.planted import Corners, plant
from trainer.detections import iou_matrix

# A removed box: the stem of its photo, its corners and its class.
Hole = tuple[str, Corners, str]

SHARE: Final = 0.2
MADE_UP: Final = 300
TESTED: Final = 0.25
HIT_IOU: Final = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=("shapes", "raccoon"))
    parser.add_argument("--out", default=Path("out/worth"), type=Path)
    parser.add_argument("--image-size", default="160")
    parser.add_argument("--seed", action="append", type=int, dest="seeds")
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    asked = parser.parse_args(own.split())
    for name in asked.sets:
        rows = []
        for seed in asked.seeds or (0,):
            out = asked.out.absolute() / f"{name}-{seed}"
            rows.append(worth(name, out, seed, asked.image_size, options.split()))
            true, holes, corrected, found = rows[-1]
            shown = f"true {true:.1f}  holes {holes:.1f}  corrected {corrected:.1f}  came back {share(rows[-1:]):.2f}"
            spent = f"audit {cost(out / 'store'):.2f} trainings"
            print(f"{name} {seed}: {shown}  found {found:.2f} of the holes  {spent}", flush=True)
        print(f"{name}: of the lost mAP came back {share(rows):.2f} (mean of {len(rows)})", flush=True)


def share(rows: Sequence[tuple[float, ...]]) -> float:
    """(corrected - holes) / (true - holes), of means."""
    true, holes, corrected, _ = np.mean(rows, axis=0)
    return float((corrected - holes) / (true - holes))


def cost(store: Path) -> float:
    """The time from the audit's request to its end, as a share of that of the run on the same photos."""

    def lasted(run: str) -> float:
        request, end = (store / "runs" / run / name for name in ("request.json", "run.json"))
        return end.stat().st_mtime - request.stat().st_mtime

    return lasted("holes.audit-3") / lasted("holes")


def worth(
    name: str, out: Path, seed: int, image_size: str, options: Sequence[str]
) -> tuple[float, float, float, float]:
    """The mAP in percent by true labels, by those with holes and after the audit; the share of the holes found."""
    learned, tested = folders(name, out, seed)
    with_holes = out / "holes"
    if not with_holes.exists():
        removed = plant(learned, with_holes, share=SHARE, seed=seed, kinds=["missing"])
        notes = [[each.stem, *each.box, each.name] for each in removed]
        (out / "removed.json").write_text(json.dumps(notes))
    holes: list[Hole] = [(row[0], tuple(row[1:5]), row[5]) for row in json.loads((out / "removed.json").read_text())]
    usual = ["--image-size", image_size, "--split", "85/15/0", "--seed", str(seed), *options]
    true, spoiled = (mean_ap(folder, tested, usual) for folder in (learned, with_holes))
    store = ["--local", "--yes", "--store", str(out / "store")]
    run("producer", "audit", "holes", "--folds", "3", "--seed", str(seed), *options, *store)
    back = answered(out / "store", holes)
    return true, spoiled, mean_ap(given_back(with_holes, back), tested, usual), len(back) / len(holes)


def folders(name: str, out: Path, seed: int) -> tuple[Path, Path]:
    """The photos to learn from and those to judge by, both with true labels, made below `out` if they are absent."""
    learned, tested = out / "true", out / "tested"
    if not tested.exists():
        source = RACCOON
        if name == "shapes":
            source = out / "made-up"
            run("worker", "synthesize", str(source), "--images", str(MADE_UP), "--seed", str(seed))
        annotations = sorted(source.rglob("*.xml"))
        photos = {path.stem: path for path in source.rglob("*.jpg")}
        order = np.random.default_rng(seed).permutation(len(annotations))
        tests = round(TESTED * len(order))
        for folder, rows in ((learned, order[tests:]), (tested, order[:tests])):
            folder.mkdir(parents=True)
            for row in rows:
                shutil.copy(annotations[row], folder)
                shutil.copy(photos[annotations[row].stem], folder)
    return learned, tested


def mean_ap(folder: Path, tested: Path, options: Sequence[str]) -> float:
    """The mAP (0.5 to 0.95) in percent, on `tested`, of the int8 model that a folder makes; what is done is kept."""
    store = folder.parent / "store"
    run("producer", "submit", str(folder), "--job", folder.name, *options, "--local", "--yes", "--store", str(store))
    model = store / "runs" / folder.name / "model_int8.tflite"
    judged = subprocess.run(
        [sys.executable, "-m", "trainer", "evaluate", str(model), str(tested), "--json"],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return 100 * float(json.loads(judged.stdout)["map"])


def answered(store: Path, holes: Sequence[Hole]) -> list[Hole]:
    """The holes that the first `len(holes)` findings of kind missing are about, each once."""
    [file] = (store / "runs").glob("*/findings.json")
    found = AuditFindings.model_validate_json(file.read_text()).findings
    asked = [each for each in found if each.kind == "missing"][: len(holes)]
    back: list[Hole] = []
    for each in asked:
        meant = [
            hole
            for hole in holes
            if hole[0] == Path(each.file).stem and hole[2] == each.proposed_class and hole not in back
        ]
        if each.proposed_box is None or not meant:
            continue
        ious = iou_matrix(np.array([each.proposed_box], np.float32), np.array([hole[1] for hole in meant], np.float32))
        if ious.max() >= HIT_IOU:
            back.append(meant[int(ious.argmax())])
    return back


def given_back(with_holes: Path, back: Sequence[Hole]) -> Path:
    """A copy of the folder in which some removed boxes stand again."""
    corrected = with_holes.parent / "corrected"
    shutil.rmtree(corrected, ignore_errors=True)
    shutil.copytree(with_holes, corrected)
    for stem, box, name in back:
        path = corrected / f"{stem}.xml"
        tree = etree.parse(str(path))
        voc_object = etree.SubElement(tree.getroot(), "object")
        etree.SubElement(voc_object, "name").text = name
        bndbox = etree.SubElement(voc_object, "bndbox")
        for corner, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
            etree.SubElement(bndbox, corner).text = f"{value:.0f}"
        tree.write(str(path))
    return corrected


def run(module: str, *command: str) -> None:
    subprocess.run([sys.executable, "-m", module, *command], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
