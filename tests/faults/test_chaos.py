"""Row 20 of docs/faults.md: everything at once, by the dice of a seed; the common outcome for every job.

`VOC_CHAOS_S` is how long (90 s; `make chaos` 600 s), `VOC_CHAOS_SEED` the seed (by default of the day's time, printed).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from producer.reconcile.dispatch import send_shard
from producer.state.status import JobStatus
from shared.broker import SHARD_TASK, celery_app
from shared.broker import Broker as Sender
from shared.errors import BrokerError
from shared.jobs.job import ShardTask
from shared.leasing.scopes import SHARD_QUEUE
from tests.cluster import Cluster, assert_chain, assert_common_outcome, children, kill_tree, wait_until
from tests.hostile import hostile_messages
from tests.object_server import ObjectServer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
DURATION_S = float(os.environ.get("VOC_CHAOS_S", "90"))
SEED = int(os.environ.get("VOC_CHAOS_SEED", str(int(time.time()) % 100_000)))
WORKERS = 2
# Pauses between two deeds: long enough that some work is done, short enough that deeds overlap.
PAUSES_S = (0.2, 3.0)


class Chaos:
    """Deeds against a running cluster; each leaves it able to recover."""

    def __init__(self, cluster: Cluster, folder: Path, dice: random.Random, server: ObjectServer | None) -> None:
        """`server`: where the store is, if that is a bucket."""
        self.cluster, self.folder, self.dice, self.server = cluster, folder, dice, server
        self.counts: Counter[str] = Counter()
        self.jobs: list[str] = []
        self.submitted = 0
        self.service = cluster.serve()
        self.workers = [cluster.worker(slots=2) for _ in range(WORKERS)]

    def deeds(self) -> list[Callable[[], None]]:
        """What may happen."""
        return [
            self.kill_child,
            self.kill_child,
            self.kill_worker,
            self.stop_worker,
            self.freeze_worker,
            self.kill_service,
            self.kill_redis,
            self.wipe_redis,
            self.lose_volume,
            self.cut_connections,
            self.double_messages,
            self.send_hostile_messages,
            self.cancel_and_retry,
            self.remove_and_submit_otherwise,
            self.retry_or_resume,
            self.litter,
            self.hurt_what_is_done,
            self.write_hostile_values,
            *([self.kill_object_server] if self.server is not None else []),
        ]

    def do_one(self) -> None:
        """Throw the dice once."""
        deed = self.dice.choice(self.deeds())
        self.counts[deed.__name__] += 1
        with suppress(RedisError, OperationalError, BrokerError, psutil.NoSuchProcess, ProcessLookupError):
            deed()
        self.restart_the_dead()
        if self.cluster.state(self.jobs[-1]) == "DONE":
            self.submit()  # deeds must meet work
        time.sleep(self.dice.uniform(*PAUSES_S))

    def restart_the_dead(self) -> None:
        """What a container engine does."""
        if self.service.poll() is not None:
            self.service = self.cluster.serve()
        self.workers = [worker if worker.poll() is None else self.cluster.worker(slots=2) for worker in self.workers]

    def is_done(self, job: str) -> bool:
        """Whether the job is; what has died since the last deed is restarted."""
        self.restart_the_dead()
        return self.cluster.state(job) == "DONE"

    def kill_child(self) -> None:
        below = children(self.dice.choice(self.workers).pid)
        if below:
            os.kill(self.dice.choice(below), signal.SIGKILL)

    def kill_worker(self) -> None:
        kill_tree(self.dice.choice(self.workers).pid)
        time.sleep(0.2)

    def stop_worker(self) -> None:
        worker = self.dice.choice(self.workers)
        worker.terminate()
        with suppress(subprocess.TimeoutExpired):
            worker.wait(10)

    def freeze_worker(self) -> None:
        worker = self.dice.choice(self.workers)
        pids = [*children(worker.pid), worker.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(1, 6))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill_service(self) -> None:
        self.service.kill()
        self.service.wait()

    def kill_redis(self) -> None:
        self.cluster.broker.kill()
        time.sleep(self.dice.uniform(0, 2))
        self.cluster.broker.start()

    def lose_volume(self) -> None:
        self.cluster.broker.kill(with_volume=True)
        self.cluster.broker.start()

    def kill_object_server(self) -> None:
        assert self.server is not None
        self.server.kill()
        time.sleep(self.dice.uniform(0, 4))
        self.server.start()

    def wipe_redis(self) -> None:
        self.cluster.broker.ledger().client.flushall()

    def cut_connections(self) -> None:
        self.cluster.broker.ledger().client.execute_command("CLIENT", "KILL", "TYPE", "normal")

    def double_messages(self) -> None:
        job = self.dice.choice(self.jobs)
        lines = list(self.cluster.storage().lines(f"jobs/{job}/plan.jsonl"))
        for line in self.dice.sample(lines, min(5, len(lines))):
            send_shard(
                Sender(self.cluster.broker.url), self.cluster.broker.ledger(), ShardTask.model_validate_json(line)
            )

    def send_hostile_messages(self) -> None:
        job = self.dice.choice(self.jobs)
        app = celery_app("hostile", self.cluster.broker.url, SHARD_QUEUE)
        line = json.loads(next(self.cluster.storage().lines(f"jobs/{job}/plan.jsonl")))
        for message in hostile_messages(line):
            app.send_task(SHARD_TASK, args=[message], queue=SHARD_QUEUE, retry=False)

    def cancel_and_retry(self) -> None:
        job = self.dice.choice(self.jobs)
        self.cluster.producer("cancel", job)
        time.sleep(self.dice.uniform(0, 2))
        self.cluster.producer("retry", job)

    def remove_and_submit_otherwise(self) -> None:
        """The same name, other pixels, sizes and classes; the removal may be killed in the middle."""
        job = self.dice.choice(self.jobs)
        self.cluster.producer("cancel", job)
        fault = self.dice.choice(["", "rm:after_note", "rm:after_run"])
        self.cluster.producer("rm", job, "--yes", check=False, VOC_FAULT=fault)
        classes = self.dice.choice([(), ("--ignore-classes", "circle"), ("--rename", "circle=disc")])
        side = self.dice.choice(["32", "64", "320"])
        self.cluster.producer("submit", str(self.folder), "--job", job, *self.options(), *classes, "--image-size", side)

    def retry_or_resume(self) -> None:
        self.cluster.producer(self.dice.choice(["retry", "resume"]), self.dice.choice(self.jobs))

    def litter(self) -> None:
        for folder in ("jobs", "runs", f"jobs/{self.dice.choice(self.jobs)}/shards"):
            for name in (".DS_Store", "x (1).json", "notes.txt"):
                self.cluster.storage().write(f"{folder}/{name}", b"")

    def hurt_what_is_done(self) -> None:
        """A byte flips in a finished job, or a file of it is gone; a person has it verified."""
        done = [job for job in self.jobs if self.cluster.state(job) == "DONE"]
        storage = self.cluster.storage()
        keys = [key for job in done for key in storage.walk(f"jobs/{job}/shards") if "-of-" in key]
        if not keys:
            return
        key = self.dice.choice(sorted(keys))
        content = bytearray(storage.read(key))
        if content and self.dice.random() < 0.5:
            content[self.dice.randrange(len(content))] ^= 1
            storage.write(key, bytes(content))
        else:
            storage.remove(key)
        self.cluster.producer("retry", key.split("/")[1])

    def write_hostile_values(self) -> None:
        scope = f"voc:{self.cluster.scope(self.dice.choice(self.jobs))}"
        client = self.cluster.broker.ledger().client
        client.set("voc:worker:evil", self.dice.choice(["{}", "[]", "x"]), ex=20)
        part = self.dice.choice(["", ":queued", ":leased", ":attempts", ":errors"])
        client.set(f"{scope}{part}", "x")

    def options(self) -> tuple[str, ...]:
        """Another seed each time, so that no job can lend another a shard."""
        self.submitted += 1
        return ("--no-train", "--shard-images", self.dice.choice(["1", "2"]), "--seed", str(self.submitted))

    def submit(self) -> None:
        job = f"job-{len(self.jobs)}"
        self.cluster.producer("submit", str(self.folder), "--job", job, *self.options())
        self.jobs.append(job)


def test_chaos_loses_and_doubles_nothing(
    cluster: Cluster, small_voc: Path, tell: Callable[[str, JobStatus], None], request: pytest.FixtureRequest
) -> None:
    print(f"\nchaos for {DURATION_S:.0f} s, seed {SEED}", file=sys.stderr)
    # A shard may meet more deaths here than in years of use: what is tested is the outcome, not the limit.
    cluster.settings |= {"VOC_ATTEMPTS": "100", "VOC_SOFT_STOP_S": "3"}
    server = request.getfixturevalue("running_object_server") if cluster.url else None
    chaos = Chaos(cluster, small_voc, random.Random(SEED), server)
    chaos.submit()
    ends_at = time.monotonic() + DURATION_S
    while time.monotonic() < ends_at:
        chaos.do_one()
    for job in chaos.jobs:
        wait_until(partial(chaos.is_done, job), 180, f"{job} is DONE")
        assert_common_outcome(cluster, job)
        assert_chain(cluster, job)
        tell(job, cluster.status(job))
    print(f"seed {SEED}, {sum(chaos.counts.values())} deeds: {dict(sorted(chaos.counts.items()))}", file=sys.stderr)
