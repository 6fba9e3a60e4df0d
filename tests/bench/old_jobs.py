"""What 500 finished jobs cost beside 5: a round of the reconciler that lists the whole store, and a `submit`.

Two stores of one finished job, copied under other names with identities of their own, take turns in changing order;
medians. Of a round the processor's time is told too, without Redis's: a busy machine's clock says little. A submit is
of the same folder with one photo changed, so that nearly all shards are reused and some are looked for in vain. A ratio
above what is promised is a MISS.

Run: `python tests/bench/old_jobs.py [--jobs 500] [--photos 2000] [--rounds 8]`.
"""

import argparse
import hashlib
import json
import logging
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from producer.jobs.removal import remove_files
from producer.jobs.submit import Request
from producer.reconcile.context import Context
from producer.reconcile.reconciler import Reconciler
from producer.settings import ProducerSettings
from shared.broker import Broker as Hints
from shared.jobs.job import Job, ShardTask
from shared.jobs.paths import JobPaths
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.specs.frozen import canonical_json
from shared.storage import Storage
from tests.cluster import Broker
from tests.tiny import add_tiny_picture, make_tiny_voc
from tests.unit.producer.folders import lint_and_submit
from worker.shard import write_shard

FEW: Final = 5
SPEC: Final = JobSpec(shard_images=128, image_size=32)
LISTING_S: Final = 60.0
MOST_ROUND, MOST_SUBMIT = 1.5, 1.2
# The first listings look at every job: then it is known which are over.
FIRST_LISTINGS: Final = 4


@dataclass
class Stage:
    """One store with a reconciler of its own, whose clock the bench moves from listing to listing."""

    folder: Path
    photos: Path
    passed_s: float = 0.0
    rounds_s: list[float] = field(default_factory=list)
    rounds_cpu_s: list[float] = field(default_factory=list)
    submits_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.storage = Storage(str(self.folder / "store"))
        self.broker = Broker(self.folder)
        self.broker.start()
        context = Context(
            storage=self.storage,
            ledger=self.broker.ledger(),
            broker=Hints(self.broker.url),
            settings=ProducerSettings(store=self.storage.root, listing_s=LISTING_S),
            clock=lambda: time.monotonic() + self.passed_s,
            unix_time=lambda: time.time() + self.passed_s,
        )
        self.reconciler = Reconciler(context)

    def submit(self, name: str) -> Job:
        request = Request(dataset=self.photos, name=name, spec=SPEC, run=None)
        return lint_and_submit(request, storage=self.storage, data_root=self.photos).job

    def finish(self, job: Job) -> None:
        """Write all shards, and have the reconciler finish the job."""
        for line in self.storage.lines(JobPaths(job.job).plan(job.incarnation)):
            task = ShardTask.model_validate_json(line)
            write_shard(task, job, storage=self.storage, data_root=self.photos, guard=Unguarded(), attempt=1)
        while not self.storage.exists(JobPaths(job.job).manifest):
            self.list_store()

    def list_store(self) -> tuple[float, float]:
        """Seconds of a round that lists the store: by the clock, and of the processor."""
        self.passed_s += LISTING_S + 1
        start, before = time.perf_counter(), time.process_time()
        if not self.reconciler.tick():
            raise SystemExit(f"{self.folder.name}: no round")
        return time.perf_counter() - start, time.process_time() - before

    def time_rounds(self, count: int) -> None:
        """Note the seconds of so many such rounds."""
        for _ in range(count):
            wall_s, cpu_s = self.list_store()
            self.rounds_s.append(wall_s)
            self.rounds_cpu_s.append(cpu_s)

    def time_submit(self, name: str) -> float:
        """Seconds of a submit, whose job is removed again."""
        start = time.perf_counter()
        job = self.submit(name)
        seconds = time.perf_counter() - start
        remove_files(self.storage, job)
        return seconds


def copy_job(storage: Storage, job: Job, name: str) -> None:
    """Another finished job of the same pairs: `job` with a name and an identity of its own in every file."""
    incarnation, folder = uuid.uuid4().hex, storage.local_path(JobPaths(name).root)
    shutil.copytree(storage.local_path(JobPaths(job.job).root), folder)
    texts = {path: path.read_text() for path in folder.rglob("*.json*")}
    for path, text in texts.items():
        path.write_text(text.replace(job.incarnation, incarnation).replace(f'"job":"{job.job}"', f'"job":"{name}"'))
    for path in list(folder.iterdir()):
        path.rename(folder / path.name.replace(job.incarnation, incarnation))
    plan = storage.lines(JobPaths(name).plan(incarnation))
    digests = {
        job.task_digest(shard): hashlib.sha256(line).hexdigest() for shard, line in zip(job.shards, plan, strict=True)
    }
    for path in (folder / "job.json", *(folder / "shards").glob("*.json")):
        path.write_text(_replaced(path.read_text(), digests))


def _replaced(text: str, digests: dict[str, str]) -> str:
    content = json.loads(text)
    if "task_digest" in content:
        content["task_digest"] = digests[content["task_digest"]]
    for plan in content.get("splits", {}).values():
        plan["digests"] = [digests[digest] for digest in plan["digests"]]
    return canonical_json(content)


def make_stage(scratch: Path, photos: Path, jobs: int) -> Stage:
    """A store of `jobs` finished jobs, all of which the reconciler has seen."""
    stage = Stage(scratch / f"with-{jobs}", photos)
    first = stage.submit("first")
    stage.finish(first)
    for number in range(1, jobs):
        copy_job(stage.storage, first, f"old-{number:03d}")
    for _ in range(FIRST_LISTINGS):
        stage.list_store()
    return stage


def report(what: str, rows: dict[int, list[float]], most: float) -> None:
    """Print medians and their ratio, and whether it holds."""
    (few, fast), (many, slow) = ((jobs, statistics.median(seconds)) for jobs, seconds in sorted(rows.items()))
    holds = slow <= most * fast
    figures = f"{1000 * fast:.1f} ms with {few} jobs, {1000 * slow:.1f} ms with {many}: {slow / fast:.2f}"
    print(f"{'ok  ' if holds else 'MISS'}\t{what}: {figures} (most {most:g})", flush=True)


def main() -> None:
    """Print both ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    logging.disable(logging.INFO)
    scratch = Path(tempfile.mkdtemp(prefix="vb-"))
    stages: dict[int, Stage] = {}
    try:
        photos = make_tiny_voc(scratch / "photos", asked.photos)
        for jobs in (FEW, asked.jobs):
            stages[jobs] = make_stage(scratch, photos, jobs)
        add_tiny_picture(photos, asked.photos)
        for stage in stages.values():
            stage.time_submit("indexing")  # the first one reads all plans, once
            for _ in range(FIRST_LISTINGS):
                stage.list_store()
        for number in range(asked.rounds):
            for stage in stages.values() if number % 2 == 0 else reversed(stages.values()):
                stage.time_rounds(3)
                stage.submits_s.append(stage.time_submit(f"new-{number}"))
                stage.list_store()  # sees what the submit has left
        report("listing round", {jobs: stage.rounds_s for jobs, stage in stages.items()}, MOST_ROUND)
        report("its processor time", {jobs: stage.rounds_cpu_s for jobs, stage in stages.items()}, MOST_ROUND)
        report("submit", {jobs: stage.submits_s for jobs, stage in stages.items()}, MOST_SUBMIT)
    finally:
        for stage in stages.values():
            stage.broker.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
