"""What the images hold, how large they are, how long a change of code takes."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import ROOT, docker

pytestmark = pytest.mark.docker

LIMIT_MB = {"producer": 300, "worker": 500, "trainer": 1800}


def _run(service: str, script: str) -> str:
    return docker("run", "--rm", "--entrypoint", "sh", f"voc2tflite-{service}:0.2.0", "-c", script).strip()


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_the_image_is_no_larger_than_its_limit(service: str, trainer_built: None) -> None:
    size_mb = int(docker("image", "inspect", "-f", "{{.Size}}", f"voc2tflite-{service}:0.2.0")) / 1e6
    print(f"\n{service}: {size_mb:.0f} MB (limit {LIMIT_MB[service]})")
    assert size_mb <= LIMIT_MB[service]


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_the_image_runs_as_another_than_root(service: str, trainer_built: None) -> None:
    assert _run(service, "id -u") == "1000"


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_the_image_holds_shared_and_its_own_code_only(service: str, trainer_built: None) -> None:
    assert _run(service, "ls /app").split() == sorted(["shared", service])


@pytest.mark.parametrize(
    ("service", "own", "others"),
    [
        ("producer", "submit", "inspect|predict"),
        ("worker", "inspect", "submit|predict"),
        ("trainer", "predict", "submit|inspect"),
    ],
)
def test_the_image_has_its_own_commands_only(service: str, own: str, others: str, trainer_built: None) -> None:
    assert _run(service, "voc2tflite --version") == "voc2tflite 0.2.0"
    assert _run(service, f"voc2tflite --help | grep -cE '^│ ({own}) '") == "1"
    assert _run(service, f"voc2tflite --help | grep -cE '^│ ({others}) ' || true") == "0"


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_no_compiler_is_left(service: str, trainer_built: None) -> None:
    assert _run(service, "command -v gcc cc g++ clang make ld || echo none") == "none"


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_the_labels_say_version_and_revision(service: str, trainer_built: None) -> None:
    labels = json.loads(docker("image", "inspect", "-f", "{{json .Config.Labels}}", f"voc2tflite-{service}:0.2.0"))
    assert labels["org.opencontainers.image.version"] == "0.2.0"
    assert labels["org.opencontainers.image.revision"] == "test"


@pytest.mark.parametrize("service", ["producer", "worker"])
def test_there_is_no_tensorflow(service: str, built: None) -> None:
    assert _run(service, "ls /venv/lib/python3.12/site-packages | grep -ciE '^(tensorflow|keras|torch)' || true") == "0"


@pytest.mark.parametrize("service", sorted(LIMIT_MB))
def test_a_change_of_code_is_an_image_within_20_seconds(service: str, trainer_built: None, tmp_path: Path) -> None:
    for name in ("shared", service, "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / ".dockerignore", tmp_path / ".dockerignore")
    with open(tmp_path / "shared/jobs/job.py", "a") as code:
        code.write(f"# {time.time()}\n")
    began = time.monotonic()
    docker("build", "-q", "-f", str(tmp_path / service / "Dockerfile"), str(tmp_path))
    seconds = time.monotonic() - began
    print(f"\n{service} after a change of shared/: {seconds:.1f} s")
    assert seconds <= 20


def test_the_gpu_override_changes_packages_and_devices_only() -> None:
    def trainer(*files: str) -> dict[str, Any]:
        names = [word for name in files for word in ("-f", str(ROOT / name))]
        service: dict[str, Any] = json.loads(docker("compose", *names, "config", "--format", "json"))["services"][
            "trainer"
        ]
        return service

    plain, gpu = trainer("docker-compose.yml"), trainer("docker-compose.yml", "docker-compose.gpu.yml")
    assert gpu["build"]["args"].pop("REQUIREMENTS") == "trainer-gpu"
    assert gpu["build"] == plain["build"]
    devices = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert [(device["driver"], device["capabilities"]) for device in devices] == [("nvidia", ["gpu"])]
    assert {name for name in gpu if gpu[name] != plain.get(name)} == {"image", "environment", "deploy"}
    locked = (ROOT / "requirements/trainer-gpu.txt").read_text()
    assert "\nnvidia-cudnn-cu12==" in locked
    assert "\ntensorflow==" in locked
