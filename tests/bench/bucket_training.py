"""Training from a bucket against a folder: the first epoch, with nothing copied yet, and the later ones.

The same shards in a folder and in a bucket of a real server on this machine, in turns and in changing order; a step of
`--step-ms` stands for the network's, that of `small` on one core by default. Decoded pictures are streamed from the
shards (`--cache-mb 0`) or kept. Medians of the rounds; ends with 1 where a promise does not hold.

Run: `python tests/bench/bucket_training.py [--photos 1024] [--rounds 4] [--cache-mb 0]`.
"""

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.state.stored import load_job
from shared.jobs.identity import read_manifest
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.object_server import ObjectServer
from trainer.data.shard_cache import shard_cache
from trainer.data.training_set import load_training_set
from trainer.settings import CacheFolder
from worker.synthetic.shapes import synthesize

BATCH: Final = 8
LEAST: Final = 0.9
EPOCHS: Final = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", default=1024, type=int)
    parser.add_argument("--rounds", default=4, type=int)
    parser.add_argument("--step-ms", default=170.0, type=float)
    parser.add_argument("--cache-mb", default=0, type=int)
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    times: dict[str, list[list[float]]] = {"folder": [], "bucket": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        synthesize(folder / "voc", images=asked.photos, seed=0)
        server = ObjectServer(folder / "server")
        os.environ.update(server.environment)
        server.start()
        try:
            stores = {"folder": str(folder / "out"), "bucket": server.url("out")}
            for store in stores.values():
                submit(folder / "voc", store)
            for number in range(asked.rounds):
                for name in list(stores) if number % 2 else list(stores)[::-1]:
                    times[name].append(epochs(stores[name], folder / f"copies-{number}", asked))
        finally:
            server.stop()
    return tell(times)


def submit(photos: Path, store: str) -> None:
    words = ["submit", str(photos), "--job", "job", "--shard-images", "64", "--no-train", "--local", "--yes"]
    subprocess.run([sys.executable, "-m", "producer", *words, "--store", store], check=True, capture_output=True)


def epochs(store: str, copies: Path, asked: Any) -> list[float]:
    """Seconds of each epoch, reading included, of a run that has no copy of a shard."""
    storage = Storage(store)
    job = load_job(storage, "job")
    manifest = read_manifest(storage, job)
    assert manifest is not None
    request = RunSpec(run="bench", job="job", incarnation=job.incarnation, batch=BATCH)
    shards = shard_cache(storage, manifest, CacheFolder(path=copies, most_bytes=10**12))
    if storage.is_local:
        storage.local_path("runs/bench").mkdir(parents=True, exist_ok=True)
    found, began = [], time.perf_counter()
    dataset = load_training_set(request, manifest, storage=storage, batch=BATCH, cache_mb=asked.cache_mb, shards=shards)
    batches = iter(dataset.batches(0))
    for _ in range(EPOCHS):
        for _ in range(dataset.pictures // BATCH):
            next(batches)
            time.sleep(asked.step_ms / 1000)
        found.append(time.perf_counter() - began)
        began = time.perf_counter()
    return found


def tell(times: dict[str, list[list[float]]]) -> int:
    """Print both promises; 1 where one does not hold."""
    missed = 0
    for name, at in (("first epoch, nothing copied", slice(0, 1)), ("later epochs", slice(1, None))):
        seconds = {way: statistics.median(sum(each[at]) for each in rounds) for way, rounds in times.items()}
        ratio, least = seconds["folder"] / seconds["bucket"], LEAST if at.start == 0 else 0.98
        missed += ratio < least
        print(
            f"{name}: folder {seconds['folder']:.1f} s, bucket {seconds['bucket']:.1f} s: {ratio:.3f} "
            f"{'holds' if ratio >= least else 'MISS'} (at least {least})"
        )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
