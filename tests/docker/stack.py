"""One Compose project of a test: its own containers, network, volumes, data folder and store; ends without a trace."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def docker(*arguments: str, timeout_s: float = 120) -> str:
    """Run docker; its standard output.

    Raises:
        AssertionError: It failed; the text is what it printed.
    """
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def kill_main_process(container: str) -> None:
    """Kill what the container's init started: an accident, after which the restart policy holds.

    (`docker kill` is a wish: what it stopped stays down.)
    """
    command = ["docker", "exec", container, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 137), done.stderr  # 137: the container ended before this command did


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A project named `name` on the repository's Compose files, its folders in `folder`."""

    name: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("docker-compose.yml",)

    @property
    def store(self) -> Path:
        """The store, as the host sees it."""
        return self.folder / "out"

    @property
    def photos(self) -> Path:
        """The data root, as the host sees it."""
        return self.folder / "data"

    def command(self, *arguments: str) -> list[str]:
        """The words of one `docker compose` command."""
        files = [word for name in self.files for word in ("-f", str(ROOT / name))]
        return ["docker", "compose", "-p", self.name, "--project-directory", str(ROOT), *files, *arguments]

    def variables(self) -> dict[str, str]:
        """This process's environment, this stack's folders and variables."""
        own = {"VOC_DATA_FOLDER": str(self.photos), "VOC_STORE_FOLDER": str(self.store), "VOC_REVISION": "test"}
        return {**os.environ, **own, **self.environment}

    def compose(self, *arguments: str, timeout_s: float = 300, expect: Iterable[int] = (0,)) -> str:
        """Run one `docker compose` command; both its outputs as one text."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode in expect, f"compose {' '.join(arguments)}: {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def up(self, *arguments: str) -> None:
        """Start services in the background, from images that are there."""
        self.compose("up", "-d", "--no-build", *arguments)

    def submit(self, *arguments: str, expect: Iterable[int] = (0,), timeout_s: float = 900) -> str:
        """`docker compose run --rm producer submit …` as a person types it."""
        return self.compose("run", "--rm", "-T", "producer", "submit", *arguments, expect=expect, timeout_s=timeout_s)

    def producer(self, *arguments: str) -> str:
        """Any other command of the producer's command line."""
        return self.compose("run", "--rm", "-T", "--no-deps", "producer", *arguments)

    def containers(self, service: str) -> list[str]:
        """Ids of the running containers of `service`."""
        return self.compose("ps", "-q", service).split()

    def logs(self, *services: str) -> list[dict[str, Any]]:
        """The JSON lines that the services have logged, in order of time."""
        text = self.compose("logs", "--no-color", "--no-log-prefix", *services)
        # Compose clears the line before some, even without a terminal.
        lines = [json.loads(line[line.index("{") :]) for line in text.splitlines() if "{" in line]
        return sorted(lines, key=lambda line: str(line["time"]))

    def redis_cli(self, command: str) -> list[str]:
        """The lines that redis-cli prints; asked in its own container, because the port is not published."""
        script = f". /run/voc/redis-cli.env; export REDISCLI_AUTH; redis-cli --raw {command}"
        return self.compose("exec", "-T", "redis", "sh", "-c", script).splitlines()

    def receipts(self, job: str) -> list[dict[str, Any]]:
        """The receipts that are in the store."""
        shards = sorted((self.store / "jobs" / job / "shards").glob("*-of-?????.json"))
        return [json.loads(shard.read_text()) for shard in shards]

    def down(self) -> None:
        """Remove containers, network and volumes."""
        everything = ("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "5")
        self.compose(*everything, timeout_s=200)


def live_workers(stack: Stack) -> set[str]:
    """The hosts (container ids) of the workers that send heartbeats."""
    keys = [line for line in stack.redis_cli("keys 'voc:worker:*'") if line.startswith("voc:worker:")]
    return {key.removeprefix("voc:worker:").split("-")[0] for key in keys}


def wait_for(fact: Callable[[], Any], *, within_s: float, what: str) -> Any:
    """Poll `fact` until it is true; its value.

    Raises:
        AssertionError: It did not become true in `within_s` seconds.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        value = fact()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {within_s} s: {what}")


def assert_common_outcome(stack: Stack, job: str) -> None:
    """A receipt for every shard, each file as its receipt says, every example once, no partial file."""
    root = stack.store / "jobs" / job
    plan = [json.loads(line) for line in (root / "plan.jsonl").read_text().splitlines()]
    planned = sorted(pair["source_id"] for task in plan for pair in task["pairs"])
    receipts = stack.receipts(job)
    assert len(receipts) == len(plan)
    assert sum(receipt["written"] + receipt["quarantined"] for receipt in receipts) == len(planned)
    for receipt in receipts:
        assert (root / "shards" / f"{receipt['shard']}.tfrecord").stat().st_size == receipt["size_bytes"]
    assert (root / "manifest.json").exists()
    assert not [path for path in stack.store.rglob("*") if ".tmp-" in path.name]
