"""Profile `monitoring`: what a person opens, what asks for a password, what Prometheus finds."""

import base64
import json
import shutil
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.docker.stack import ROOT, Stack, docker, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

PORTS = {"flower": 5555, "tensorboard": 6006, "prometheus": 9090}
SCRAPE = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9100/metrics').read().decode())"
NO_FIXED_PORT = {f"VOC_{service.upper()}_PORT": "0" for service in PORTS}


def _get(address: str, path: str, password: str | None = None) -> tuple[int, str]:
    """Status (0: nobody answers) and text of a page."""
    request = Request(f"http://{address}{path}")
    if password is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"voc:{password}".encode()).decode())
    try:
        with urlopen(request, timeout=20) as answer:
            return int(answer.status), answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, ""
    except (URLError, OSError):
        return 0, ""


@pytest.fixture
def monitored(stack: Stack, monitoring_built: None) -> Stack:
    """The whole profile, one worker and the producer."""
    own = Stack(name=stack.name, folder=stack.folder, environment={**stack.environment, **NO_FIXED_PORT})
    own.up("--scale", "worker=1", "worker", "producer", *PORTS)
    return own


def test_flower_tensorboard_and_prometheus_answer_and_see_the_pipeline(monitored: Stack) -> None:
    at = {service: monitored.compose("port", service, str(port)).strip() for service, port in PORTS.items()}
    assert all(address.startswith("127.0.0.1:") for address in at.values())
    password = monitored.compose("exec", "-T", "flower", "cat", "/run/voc/flower_password").strip()

    wait_for(lambda: _get(at["flower"], "/healthcheck")[0] == 200, within_s=60, what="Flower")
    assert _get(at["flower"], "/")[0] == 401
    assert _get(at["flower"], "/api/workers")[0] == 401
    assert _get(at["flower"], "/metrics")[0] == 200  # open: DESIGN of Flower, and why its port stays on 127.0.0.1
    worker = monitored.containers("worker")[0][:12]
    wait_for(lambda: worker in _get(at["flower"], "/", password)[1], within_s=60, what="the worker in Flower")

    wait_for(lambda: _get(at["tensorboard"], "/")[0] == 200, within_s=60, what="TensorBoard")

    def targets() -> dict[str, str]:
        text = _get(at["prometheus"], "/api/v1/targets")[1] or '{"data": {"activeTargets": []}}'
        return {target["labels"]["job"]: target["health"] for target in json.loads(text)["data"]["activeTargets"]}

    wait_for(lambda: targets() == {"producer": "up", "flower": "up"}, within_s=60, what="both targets")
    rules = json.loads(_get(at["prometheus"], "/api/v1/rules")[1])["data"]["groups"][0]["rules"]
    assert {rule["name"] for rule in rules} >= {"OldestPendingShard", "ShardsFailed", "ProducerDown", "RedisDown"}
    wait_for(
        lambda: 'value":[' in _get(at["prometheus"], "/api/v1/query?query=voc_worker_processes")[1],
        within_s=60,
        what="the pipeline's own metrics",
    )


def test_a_shard_that_nobody_takes_shows_in_the_alerts_metric(monitored: Stack, small_set: Path) -> None:
    shutil.copytree(small_set, monitored.photos / "small")
    monitored.up("--no-recreate", "--scale", "worker=0", "worker")
    monitored.submit("/data/small", "--no-train")
    address = monitored.compose("port", "prometheus", "9090").strip()

    def waits_s() -> float:
        text = _get(address, "/api/v1/query?query=voc_oldest_pending_shard_seconds")[1] or "{}"
        result = json.loads(text).get("data", {}).get("result", [])
        return float(result[0]["value"][1]) if result else 0.0

    wait_for(lambda: waits_s() > 5, within_s=90, what="the oldest shard's wait in Prometheus")
    text = monitored.compose("exec", "-T", "producer", "python", "-c", SCRAPE)
    assert 'voc_shards{job_name="small",state="queued"}' in text


@pytest.mark.parametrize(
    "check", [("check", "config", "/etc/voc/prometheus.yml"), ("test", "rules", "/tests/alerts.yml")]
)
def test_the_prometheus_files_pass_promtool(monitoring_built: None, check: tuple[str, ...]) -> None:
    mounts = (
        "-v",
        f"{ROOT}/producer/monitoring:/etc/voc:ro",
        "-v",
        f"{ROOT}/tests/docker/alerts.yml:/tests/alerts.yml:ro",
    )
    assert "SUCCESS" in docker("run", "--rm", *mounts, "voc2tflite-prometheus:0.2.0", "promtool", *check)
