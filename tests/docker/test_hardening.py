"""What a running stack is allowed to do, as the engine itself tells it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import Stack, docker, wait_for

pytestmark = pytest.mark.docker


def _inspect(stack: Stack) -> dict[str, dict[str, Any]]:
    ids = stack.compose("ps", "-a", "-q").split()
    facts = json.loads(docker("inspect", *ids))
    return {fact["Config"]["Labels"]["com.docker.compose.service"]: fact for fact in facts}


def test_the_running_stack_is_locked_down(stack: Stack) -> None:
    stack.up("--scale", "worker=1", "worker", "producer")
    facts = _inspect(stack)
    assert set(facts) == {"prepare", "redis", "producer", "worker"}
    password = stack.compose("exec", "-T", "worker", "cat", "/run/voc/broker_password").strip()
    assert len(password) == 48
    for service, fact in facts.items():
        host = fact["HostConfig"]
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        assert host["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}, service
        assert host["PortBindings"] in (None, {}), service
        assert password not in json.dumps(fact), service
    for service in ("redis", "producer", "worker"):
        fact = facts[service]
        assert fact["HostConfig"]["CapAdd"] is None
        assert fact["Config"]["User"] not in ("", "0", "root", "0:0")
        assert fact["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
        assert fact["HostConfig"]["Init"]
        assert fact["HostConfig"]["Memory"] > 0
        assert fact["HostConfig"]["PidsLimit"] > 0
    for service in ("producer", "worker"):
        mounts = {mount["Destination"]: mount["RW"] for mount in facts[service]["Mounts"]}
        assert mounts == {"/run/voc": False, "/data": False, "/out": True}


def test_redis_refuses_a_client_without_the_password(stack: Stack) -> None:
    stack.up("redis")
    assert "NOAUTH" in stack.compose("exec", "-T", "redis", "redis-cli", "ping")


def test_a_service_knows_its_own_password_only_and_may_do_its_own_work_only(stack: Stack) -> None:
    stack.up("--scale", "worker=1", "worker", "producer")
    passwords = {}
    for service in ("worker", "producer"):
        assert stack.compose("exec", "-T", service, "ls", "/run/voc").split() == ["broker_password"]
        passwords[service] = stack.compose("exec", "-T", service, "cat", "/run/voc/broker_password").strip()
    assert passwords["worker"] != passwords["producer"]

    def says(*command: str) -> str:
        login = ("redis-cli", "--no-auth-warning", "--user", "worker", "--pass", passwords["worker"])
        return stack.compose("exec", "-T", "redis", *login, *command)

    assert "PONG" in says("ping")
    for forbidden in (("flushall",), ("config", "get", "*"), ("set", "voc:generation", "x"), ("keys", "*")):
        assert "NOPERM" in says(*forbidden), forbidden


def test_a_one_off_command_is_well_as_long_as_it_runs(stack: Stack, small_set: Path) -> None:
    shutil.copytree(small_set, stack.photos / "small")
    stack.up("producer")
    # Nobody works: it waits.
    stack.compose("run", "-d", "--name", f"{stack.name}-one-off", "producer", "submit", "/data/small", "--wait")
    container = f"{stack.name}-one-off"
    try:
        wait_for(
            lambda: docker("inspect", "-f", "{{.State.Health.Status}}", container).strip() == "healthy",
            within_s=40,
            what="healthy",
        )
        assert docker("inspect", "-f", "{{.State.Running}}", container).strip() == "true"
    finally:
        docker("rm", "-f", container)


def test_a_service_is_healthy_while_redis_answers_and_unhealthy_without(stack: Stack) -> None:
    stack.up("--scale", "worker=1", "worker", "producer")

    def health(service: str) -> str:
        return str(_inspect(stack)[service]["State"]["Health"]["Status"])

    wait_for(lambda: {health("worker"), health("producer")} == {"healthy"}, within_s=60, what="healthy")
    stack.compose("pause", "redis")
    wait_for(lambda: health("worker") != "healthy" or None, within_s=100, what="unhealthy")
    stack.compose("unpause", "redis")
    wait_for(lambda: {health("worker"), health("producer")} == {"healthy"}, within_s=100, what="healthy again")
    assert health("redis") == "healthy"


def test_what_is_written_into_the_store_belongs_to_the_user_of_the_host(stack: Stack, small_set: Path) -> None:
    own = Stack(name=stack.name, folder=stack.folder, environment={"VOC_UID": "4321", "VOC_GID": "4322"})
    shutil.copytree(small_set, own.photos / "small")
    own.up("--scale", "worker=1", "worker", "producer")
    own.submit("/data/small", "--no-train", "--wait")
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in own.store.rglob("*")}
    assert owners == {(4321, 4322)}


def test_a_store_of_somebody_else_is_refused_with_the_remedy(stack: Stack) -> None:
    docker("run", "--rm", "-u", "0", "-v", f"{stack.store}:/out", "redis:7-bookworm", "chown", "4242:4242", "/out")
    text = stack.compose("up", "--no-build", "prepare")
    assert "the store belongs to user 4242" in text
    assert "VOC_UID" in text
    assert "exited with code 1" in text
