"""Two hosts, played by two Compose projects that share nothing but a folder and a published TLS port."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docker.stack import Stack, assert_common_outcome, docker, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

FILES = ("docker-compose.yml", "docker-compose.hosts.yml")


def certificate(folder: Path, address: str) -> None:
    """A self-signed certificate, made with the command that docker-compose.hosts.yml gives."""
    folder.mkdir(parents=True)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={address}"]
    own = ["-addext", f"subjectAltName=IP:{address}", "-keyout", "redis.key", "-out", "redis.crt"]
    subprocess.run([*words, *own], cwd=folder, check=True, capture_output=True)


def address_of_this_host() -> str:
    """The address that containers reach this host by: their default gateway, from their routing table."""
    table = docker("run", "--rm", "python:3.12-slim-bookworm", "cat", "/proc/net/route")
    gateway = next(row.split()[2] for row in table.splitlines() if row.split()[1] == "00000000")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(gateway)))


def _host(stack: Stack, name: str, address: str) -> Stack:
    own = {
        "VOC_BROKER_HOST": address,
        "VOC_BROKER_BIND": address,
        "VOC_SECRETS_FOLDER": str(stack.folder / "secrets" / name),
    }
    return Stack(
        name=f"{stack.name}-{name}", folder=stack.folder, environment={**stack.environment, **own}, files=FILES
    )


def live_workers(first: Stack) -> int:
    """How many workers beat in the first host's Redis."""
    script = ". /run/voc/redis-cli.env; export REDISCLI_AUTH; redis-cli --tls --insecure --raw keys 'voc:worker:*'"
    return first.compose("--profile", "broker", "exec", "-T", "redis", "sh", "-c", script).count("voc:worker:")


def test_a_second_host_works_for_the_first_over_tls(stack: Stack, small_set: Path) -> None:
    address = address_of_this_host()
    first, second = _host(stack, "first", address), _host(stack, "second", address)
    shutil.copytree(small_set, stack.photos / "small")
    certificate(stack.folder / "secrets/first/redis", address)
    try:
        first.compose("--profile", "broker", "up", "-d", "--no-build", "redis", "producer")
        shutil.copytree(stack.folder / "secrets/first/worker", stack.folder / "secrets/second/worker")
        second.up("--scale", "worker=2", "worker")
        wait_for(lambda: live_workers(first) == 2, within_s=60, what="both workers, seen by the first host")
        text = first.compose(
            "--profile", "broker", "run", "--rm", "-T", "producer", "submit", "/data/small", "--no-train", "--wait"
        )
        assert "2 worker processes" in text
        assert_common_outcome(stack, "small")
        assert first.compose("ps", "-q", "worker") == ""
        assert second.compose("ps", "-q", "producer") == ""
    finally:
        second.down()
        first.down()
