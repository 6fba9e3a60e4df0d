"""Real processes for tests: a broker, workers, a trainer and the producer's service, to be started and killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from producer.doctor.job_chain import check_chain
from producer.local.pipeline import BROKER_OPTIONS
from producer.local.redis_server import Server, embedded_server
from producer.redis_users import make_users
from producer.state.status import JobStatus, job_status
from producer.state.stored import load_job, stored_state
from shared.jobs.identity import read_receipt
from shared.jobs.manifest import Manifest
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.leasing.ledger import Ledger
from shared.leasing.redis_client import connect
from shared.leasing.scopes import UnderWay, job_scope, run_scope
from shared.storage import Storage

REPOSITORY = Path(__file__).resolve().parent.parent


class Broker:
    """A real Redis or Valkey on a unix socket that can be killed and started again on its append-only file."""

    def __init__(self, folder: Path, options: tuple[str, ...] = (), server: Server | None = None) -> None:
        self.folder, self.options = folder, options
        self.program = (server or embedded_server()).path
        self.url = f"unix://{folder / 'redis.sock'}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [
            str(self.program),
            *BROKER_OPTIONS,
            *self.options,
            "--dir",
            str(self.folder),
            "--unixsocket",
            str(self.folder / "redis.sock"),
        ]
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self.ledger().is_reachable, 20, "the broker answers")

    def url_of(self, user: str) -> str:
        """The broker's URL for a service; here there is one user only."""
        return self.url

    def ledger(self) -> Ledger:
        """A ledger on it."""
        return Ledger(connect(self.url))

    def kill(self, *, with_volume: bool = False) -> None:
        """SIGKILL; with `with_volume` its append-only file is lost too."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if with_volume:
            for path in sorted(self.folder.rglob("*.aof*"), reverse=True):
                path.unlink()

    def stop(self) -> None:
        """End it if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


class GuardedBroker(Broker):
    """A broker with a user for each service (`shared/users.acl`)."""

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        super().__init__(folder, options=("--aclfile", str(make_users(folder / "secrets"))), server=server)
        self.url = self.url_of("default")

    def url_of(self, user: str) -> str:
        """The broker's URL for `user`."""
        password = (self.folder / f"secrets/{user}_password").read_text()
        return f"unix://{user}:{password}@{self.folder / 'redis.sock'}"

    def denied(self) -> list[str]:
        """What Redis has refused to whom; not how clients tell their version, which no user may (`users.acl`)."""
        log = [entry for entry in self.ledger().client.acl_log() if entry["object"] != "client|setinfo"]
        return [f"{entry['username']}: {entry['object']} ({entry['context']})" for entry in log]


@dataclass
class Cluster:
    """Processes on one broker, one store and one data root.

    The store is the folder `store`, or the bucket's folder at `url`; then only logs and markers lie beside `store`.
    """

    broker: Broker
    store: Path
    data_root: Path
    settings: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()  # a command that every process is started through
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    url: str = ""

    def environment(self, user: str, **extra: str) -> dict[str, str]:
        """The environment of a service that is `user` to the broker."""
        return {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "VOC_BROKER_URL": self.broker.url_of(user),
            "VOC_STORE": self.url or str(self.store),
            "VOC_DATA_ROOT": str(self.data_root),
            "VOC_LOG_FORMAT": "json",
            **self.settings,
            **extra,
        }

    def start(self, name: str, command: list[str], *, user: str, **extra: str) -> "subprocess.Popen[bytes]":
        """Start a process of this cluster; its output goes to a log beside the store."""
        self.store.mkdir(parents=True, exist_ok=True)
        with open(self.store.parent / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, *command],
                env=self.environment(user, **extra),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def worker(self, *, slots: int = 1, name: str = "worker", **extra: str) -> "subprocess.Popen[bytes]":
        """Start a worker with `slots` child processes."""
        return self._celery("worker.app", "shards", slots, name, **extra)

    def trainer(self, *, name: str = "trainer", **extra: str) -> "subprocess.Popen[bytes]":
        """Start a trainer."""
        return self._celery("trainer.app", "train", 1, name, **extra)

    def _celery(self, app: str, queue: str, slots: int, name: str, **extra: str) -> "subprocess.Popen[bytes]":
        node = f"{name}-{len(self.processes)}@test"
        options = ["-Q", queue, "-n", node, "--concurrency", str(slots), "--without-mingle", "--without-gossip"]
        command = ["-m", "celery", "-A", app, "worker", *options, "--loglevel", "warning"]
        return self.start(name, command, user=app.partition(".")[0], **extra)

    def serve(self, **extra: str) -> "subprocess.Popen[bytes]":
        """Start the producer's service, with quick rounds."""
        return self.start("serve", ["-m", "producer", "serve"], user="producer", **{"VOC_TICK_S": "0.3", **extra})

    def leading_serve(self) -> "subprocess.Popen[bytes]":
        """Start the producer's service, and wait until it has led; a job from before that would wait for a lease."""
        service = self.serve()
        wait_until(lambda: self.broker.ledger().identity()[1] is not None, 30, "the service leads")
        return service

    def producer(
        self, *arguments: str, check: bool = True, stdin: str = "", **extra: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run the producer's command line to its end, `stdin` typed in."""
        ended = subprocess.run(
            [*self.prefix, sys.executable, "-m", "producer", *arguments],
            env=self.environment("producer", **extra),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0 or not check, f"producer {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
        return ended

    def storage(self) -> Storage:
        """The store."""
        return Storage(self.url or str(self.store))

    def status(self, job: str) -> JobStatus:
        """The job's status, as `producer status` tells it."""
        storage = self.storage()
        return job_status(storage, self.broker.ledger(), load_job(storage, job), 0.1)

    def scope(self, job: str) -> str:
        """The job's scope in the ledger."""
        return job_scope(load_job(self.storage(), job))

    def run_scope(self, job: str) -> str:
        """The scope of the job's run in the ledger."""
        run = load_job(self.storage(), job).run
        assert run is not None
        return run_scope(run)

    def under_way(self, scope: str) -> UnderWay:
        """What the ledger knows of a scope's units."""
        return self.broker.ledger().under_way(scope, lambda _: True)

    def wait_for(self, job: str, states: tuple[str, ...] = ("DONE",), timeout_s: float = 180) -> JobStatus:
        """Wait until the job is in one of `states`."""
        wait_until(lambda: self.state(job) in states, timeout_s, f"{job} is {' or '.join(states)}")
        return self.status(job)

    def state(self, job: str) -> str:
        """The job's state by storage alone."""
        storage = self.storage()
        return stored_state(storage, load_job(storage, job), 0.1).state

    def stop(self) -> None:
        """Kill everything that is left."""
        for process in self.processes:
            kill_tree(process.pid)
        for process in self.processes:
            process.wait()

    def log(self, name: str) -> list[dict[str, Any]]:
        """The whole JSON lines that a process has logged; one that is being written is not looked at yet."""
        lines = self.text(name).rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def text(self, name: str) -> str:
        """All that a process has written to its log."""
        return (self.store.parent / f"{name}.log").read_text(errors="replace")

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return [line for line in self.log(name) if line.get("event") == event]


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Wait until `condition()` is true; the seconds it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout_s:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - start


def wait_for_progress(cluster: Cluster, done: int, job: str = "job") -> float:
    """Wait until more than `done` shards of `job` are done; the seconds it took."""
    return wait_until(lambda: cluster.status(job).done > done, 90, f"more than {done} shards of {job} are done")


def children(pid: int) -> list[int]:
    """The process ids of the direct children of `pid`."""
    with suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def kill_tree(pid: int) -> None:
    """SIGKILL a process and all below it."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        below = process.children(recursive=True)
        for one in [process, *below]:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)


def assert_common_outcome(cluster: Cluster, job: str, *, failed: int = 0) -> Manifest:
    """What holds after every fault: each pair of the plan in one place, the right digests, nothing partial.

    Args:
        cluster: Where the job ran.
        job: A finalized job.
        failed: How many shards are expected to be given up.

    Returns:
        The job's manifest.
    """
    storage, paths = cluster.storage(), JobPaths(job)
    spec = load_job(storage, job)
    plan = {
        json.loads(line)["split"] + str(json.loads(line)["index"]): json.loads(line)
        for line in storage.lines(paths.plan(spec.incarnation))
    }
    receipts: list[ShardReceipt] = []
    for shard in spec.shards:
        receipt = read_receipt(storage, spec, shard)
        if receipt is None:
            assert storage.exists(paths.failure(shard)), f"{shard} is neither done nor failed"
            continue
        receipts.append(receipt)
        assert receipt.task_digest == spec.task_digest(shard)
        assert receipt.written + receipt.quarantined == len(plan[receipt.split + str(receipt.index)]["pairs"])
    assert len(spec.shards) - len(receipts) == failed
    manifest = Manifest.model_validate_json(storage.read(paths.manifest))
    assert_files_match(cluster, manifest, receipts)
    left = [key for key in storage.walk(paths.root) if ".tmp-" in key]
    assert not left, f"half-written files are left: {left}"
    return manifest


def assert_chain(cluster: Cluster, job: str) -> None:
    """What `producer doctor JOB` finds from the request to the model: every link holds."""
    checks = check_chain(cluster.storage(), load_job(cluster.storage(), job), 0.1, lambda *_: None)
    assert [check.name for check in checks] == ["asked", "planned", "written", "finished", "trained"]
    assert not [check for check in checks if not check.is_well]


def assert_files_match(cluster: Cluster, manifest: Manifest, receipts: list[ShardReceipt]) -> None:
    """Every shard file is the one of its receipt and of the manifest, with as many examples as they say."""
    import hashlib

    by_file = {f"{receipt.shard}.tfrecord": receipt for receipt in receipts}
    listed = [shard for split in manifest.splits.values() for shard in split]
    assert {shard.file for shard in listed} == by_file.keys()
    names: set[str] = set()
    for shard in listed:
        content = cluster.storage().read(f"{JobPaths(manifest.job).shards}/{shard.file}")
        assert hashlib.sha256(content).hexdigest() == shard.sha256 == by_file[shard.file].sha256
        found = example_names(content)
        assert len(found) == shard.examples == by_file[shard.file].written
        assert not names & set(found), "a picture is in two shards"
        names |= set(found)


def example_names(content: bytes) -> list[str]:
    """The `image/filename` of each record of a shard file."""
    from shared.jobs.schema import FILENAME
    from worker.record.example import parse_example
    from worker.record.tfrecord import read_records

    found = [parse_example(record)[FILENAME][0] for record in read_records(content, file="shard")]
    return [name.decode() for name in found if isinstance(name, bytes)]
