"""An audit by one trainer and by two: the time from its request to its findings, and the ratio of the two.

Real Redis, service, worker and trainers; four folds of `nano` on made-up photos, each trainer on one thread and a core
of its own. One, two, two and one trainers, so that a machine that gets slower or faster does not decide. They are up
before the audit is asked for; starting each run's process is part of the time, as it is for a person. About 10 minutes:
`python tests/bench/audit_trainers.py [--epochs 20] [--images 200]`. Two free cores, else it says nothing of trainers.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.photo_sets import ROOT
from tests.cluster import Broker, Cluster, wait_until

FOLDS: Final = 4
DATA: Final = ("--image-size", "128", "--no-train", "--wait")
TRAINING: Final = ("--folds", str(FOLDS), "--model", "nano", "--backbone", "conv")


def audit_s(folder: Path, photos: Path, trainers: int, epochs: int) -> float:
    """Seconds of an audit by so many trainers, on a broker and a store of its own."""
    folder.mkdir()
    broker = Broker(folder)
    cluster = Cluster(broker=broker, store=folder / "store", data_root=photos.parent)
    cluster.settings["VOC_THREADS"] = "1"
    broker.start()
    try:
        cluster.leading_serve()
        cluster.worker()
        cores = sorted(os.sched_getaffinity(0))
        for number in range(trainers):
            trainer = cluster.trainer(name=f"trainer{number}")
            os.sched_setaffinity(trainer.pid, {cores[number % len(cores)]})
        cluster.producer("submit", str(photos), "--job", "job", *DATA)
        wait_until(lambda: cluster.broker.ledger().slots("trainer") == trainers, 120, "the trainers are up")
        began = time.monotonic()
        cluster.producer("audit", "job", *TRAINING, "--epochs", str(epochs), "--wait")
        return time.monotonic() - began
    finally:
        cluster.stop()
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--images", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="voc-audit-") as name:
        photos = Path(name, "shapes")
        make = [sys.executable, "-m", "worker", "synthesize", str(photos), "--images", str(asked.images)]
        subprocess.run(make, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        seconds = []
        for number, trainers in enumerate((1, 2, 2, 1)):
            seconds.append(audit_s(Path(name, f"round-{number}"), photos, trainers, asked.epochs))
            print(f"{FOLDS} folds by {trainers} trainer(s): {seconds[-1]:.0f} s", flush=True)
    ratio = (seconds[1] + seconds[2]) / (seconds[0] + seconds[3])
    print(f"two trainers take {ratio:.2f} of the time of one (1/2 asked)")


if __name__ == "__main__":
    main()
