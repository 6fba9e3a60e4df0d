"""Profile `monitoring`: what a person opens, what asks for a password, what Prometheus finds."""

import base64
import json
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.docker.stack import Stack, docker, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

PORTS = {"flower": 5555, "tensorboard": 6006, "prometheus": 9090}
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
def monitored(stack: Stack) -> Stack:
    """The whole profile, one worker and the producer."""
    own = Stack(name=stack.name, folder=stack.folder, environment={**stack.environment, **NO_FIXED_PORT})
    own.compose("--profile", "monitoring", "build", *PORTS, timeout_s=1200)
    own.up("--scale", "worker=1", "worker", "producer", *PORTS)
    return own


def test_what_a_person_watches(monitored: Stack) -> None:
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


def test_the_prometheus_files_pass_promtool(monitored: Stack) -> None:
    prometheus = monitored.containers("prometheus")[0]
    assert "SUCCESS" in docker("exec", prometheus, "promtool", "check", "config", "/etc/voc/prometheus.yml")
