"""Workers from 0 by what the producer says: does what KEDA does, with the chart's own numbers and real workers."""

import json
import math
import signal
import subprocess
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil
import pytest
import yaml

from tests.chart import CHART
from tests.cluster import Cluster, assert_common_outcome, children, wait_until
from tests.ports import claim_ports

KEDA = yaml.safe_load((CHART / "values.yaml").read_text())["keda"]
WORKERS = 4
# The chart's seconds are this many times those of the test.
HASTE = 15


class Scaler:
    """KEDA's rule for one ScaledObject of type metrics-api, and a Deployment that obeys it at once.

    Active above 0, with as many replicas as make the value at most `each` of them; to fewer only when nothing in the
    stabilization window asked for more, to none when nothing was active in the cooldown period. While the endpoint
    gives an error everything stays. Source: KEDA's "Scaling Deployments" and the HorizontalPodAutoscaler's algorithm.
    """

    def __init__(self, cluster: Cluster, url: str, *, value: str, each: int, most: int) -> None:
        self.cluster, self.url, self.value, self.each, self.most = cluster, url, value, each, most
        self.pods: list[subprocess.Popen[bytes]] = []
        self.history = [0]
        self.asked: list[tuple[float, int]] = []
        self.hold_s = KEDA["cooldownPeriod"] / HASTE

    def poll(self) -> None:
        """One look at the endpoint, and what follows."""
        time.sleep(KEDA["pollingInterval"] / HASTE)
        found = demand(self.url)
        if self.value not in found:
            return
        now = time.monotonic()
        self.asked.append((now, min(self.most, math.ceil(found[self.value] / self.each))))
        replicas = max(count for at, count in self.asked if now - at <= self.hold_s)
        while len(self.pods) < replicas:
            self.pods.append(self._start(len(self.pods)))
        while len(self.pods) > replicas:
            _stop(self.pods.pop())
        if replicas != self.history[-1]:
            self.history.append(replicas)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        """A worker that stands still in its first shard until somebody continues it."""
        fault = f"freeze/shard:before_rename@{self.marker(number)}"
        return self.cluster.worker(name=f"pod{number}", VOC_FAULT=fault)

    def let_go_on(self) -> None:
        """Continue whoever stands still."""
        for pod in self.pods:
            for child in children(pod.pid):
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(child).send_signal(signal.SIGCONT)

    def marker(self, number: int) -> Path:
        """The file that worker `number` makes when it stands still."""
        return self.cluster.store.parent / f"pod{number}-is-at-work"


def demand(url: str) -> dict[str, Any]:
    """What the endpoint says; its error where it is one."""
    try:
        with urlopen(url, timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        with error:
            found = json.load(error) if error.code == HTTPStatus.SERVICE_UNAVAILABLE else {"error": str(error)}
    except URLError:
        return {"error": "nobody answers"}
    return found


def _stop(pod: "subprocess.Popen[bytes]") -> None:
    """As Kubernetes ends a pod."""
    pod.terminate()
    assert pod.wait(timeout=60) is not None


@pytest.fixture
def url(cluster: Cluster) -> str:
    """The endpoint of a service that has been started."""
    [port] = claim_ports(1)
    cluster.serve(VOC_METRICS_PORT=str(port))
    return f"http://127.0.0.1:{port}/demand"


def test_workers_grow_from_none_with_the_work_and_end_with_it(cluster: Cluster, small_voc: Path, url: str) -> None:
    cluster.settings |= {"VOC_LEASE_S": "120", "VOC_STALL_S": "600"}
    assert KEDA["worker"]["shardsEach"] * WORKERS < 20
    scaler = Scaler(cluster, url, value="shards", each=KEDA["worker"]["shardsEach"], most=WORKERS)
    wait_until(lambda: demand(url) == {"shards": 0, "runs": 0}, 60, "the service says that there is nothing to do")
    scaler.poll()
    assert scaler.pods == []
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "2")

    def are_all_at_work() -> bool:
        scaler.poll()
        return all(scaler.marker(number).exists() for number in range(WORKERS))

    wait_until(are_all_at_work, 120, f"{WORKERS} workers hold a shard each")

    def is_over() -> bool:
        scaler.let_go_on()
        scaler.poll()
        return not scaler.pods

    wait_until(is_over, 240, "the work is done and no worker is left")
    top = scaler.history.index(WORKERS)
    assert scaler.history == [*sorted(scaler.history[: top + 1]), *sorted(scaler.history[top + 1 :], reverse=True)]
    # The data set is finished; the training that was asked for waits for a trainer, for whom it counts.
    wait_until(lambda: demand(url) == {"shards": 0, "runs": 1}, 60, "a run is asked for")
    manifest = assert_common_outcome(cluster, "job")
    assert sum(manifest.examples(split) for split in manifest.splits) == 40
    assert cluster.events("serve", "hint_lost") == []
    assert cluster.status("job").attempts == cluster.status("job").shards
    cluster.producer("cancel", "job")
    wait_until(lambda: demand(url) == {"shards": 0, "runs": 0}, 60, "what is cancelled is nothing to do")


def test_while_redis_is_away_there_is_no_number_to_scale_by(cluster: Cluster, small_voc: Path, url: str) -> None:
    cluster.producer("submit", str(small_voc), "--job", "job", "--shard-images", "4", "--no-train")
    wait_until(lambda: demand(url).get("shards"), 60, "the service says how much there is to do")
    shards = demand(url)["shards"]
    cluster.broker.kill(with_volume=True)
    wait_until(lambda: "Redis" in demand(url).get("error", ""), 60, "the endpoint says that Redis is away")
    cluster.broker.start()
    wait_until(lambda: demand(url).get("shards") == shards, 120, "the number is back, after Redis was wiped")
    cluster.broker.ledger().client.set("voc:demand", '{"shards": "many", "runs": -1}')
    wait_until(lambda: demand(url).get("shards") == shards, 60, "a foreign value counts as absent")
    cluster.worker()
    cluster.wait_for("job", ("FINALIZED", "DONE"))
    assert_common_outcome(cluster, "job")
