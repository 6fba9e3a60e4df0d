"""What a running stack is allowed to do, as the engine itself tells it, and as its containers find out by trying."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docker.stack import Stack, assert_common_outcome, docker, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

MOUNTS = {
    "producer": {"/run/voc": False, "/data": False, "/out": True},
    "worker": {"/run/voc": False, "/data": False, "/out": False, "/out/jobs": True},
    "trainer": {"/run/voc": False, "/out": False, "/out/runs": True},
}


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
        assert _mounts(facts[service]) == MOUNTS[service]
    users = {service: facts[service]["Config"]["User"].split(":") for service in ("producer", "worker")}
    assert users["worker"][0] != users["producer"][0]
    assert users["worker"][1] == users["producer"][1]


def _mounts(fact: dict[str, Any]) -> dict[str, bool]:
    """Where something is mounted, and whether it may be written."""
    return {mount["Destination"]: mount["RW"] for mount in fact["Mounts"]}


def _tampering(file: str) -> Iterator[str]:
    """Every way to change a file, or to put another in its place."""
    yield f"echo evil >>{file}"
    yield f"touch {file}"
    yield f"chmod 0666 {file}"
    yield f"echo evil >{file}.new && mv {file}.new {file}"
    yield f"ln -sf /etc/hostname {file}"
    yield f"mv {file} {file}.away"
    yield f"rm -f {file}"


def _allowed(stack: Stack, service: str, commands: Iterable[str]) -> list[str]:
    """Those of `commands` that succeed in the running container of `service`."""
    script = "".join(f"if sh -c '{command}' 2>/dev/null; then echo '{command}'; fi\n" for command in commands)
    return stack.compose("exec", "-T", service, "sh", "-c", script).splitlines()


def _content(folder: Path) -> dict[str, str]:
    """Everything below `folder`: its mode, and what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {digest}"
    return found


def _plant_a_run(stack: Stack) -> None:
    """Files of a finished run, written by who owns the store."""
    script = "mkdir -p /out/runs/x && for name in model_int8.tflite run.json; do echo good >/out/runs/x/$name; done"
    stack.compose("exec", "-T", "producer", "sh", "-c", script)


def _plans(stack: Stack) -> list[str]:
    """The names of the plan of job `small`."""
    return sorted(path.name for path in (stack.store / "jobs/small").glob("plan*.jsonl"))


def _finished_job(stack: Stack, photos: Path) -> None:
    """Producer and worker are up, job `small` is done, and there is a run `x`."""
    shutil.copytree(photos, stack.photos / "small")
    stack.up("--scale", "worker=1", "worker", "producer")
    stack.submit("/data/small", "--no-train", "--wait")
    assert_common_outcome(stack, "small")
    _plant_a_run(stack)


def test_a_worker_may_write_shards_and_nothing_else(stack: Stack, small_set: Path) -> None:
    _finished_job(stack, small_set)
    files = ("job.json", *_plans(stack), "manifest.json", "label_map.pbtxt", "lint.csv", "splits/train.txt")
    targets = ["/out/runs/x/model_int8.tflite", "/out/runs/x/run.json", *(f"/out/jobs/small/{name}" for name in files)]
    assert all((stack.store / target.removeprefix("/out/")).exists() for target in targets)
    forbidden = [
        *(command for target in targets for command in _tampering(target)),
        "touch /out/x",
        "mkdir /out/jobs/evil",
        "mkdir /out/runs/evil",
        "mkdir /out/jobs/small/failed",
        "echo {} >/out/jobs/small/cancelled.json",
        "chmod 0777 /out/jobs/small",
        "chmod 0777 /out/jobs/small/shards",
        "chmod 0777 /out/jobs",
        "mv /out/jobs/small/shards /out/jobs/small/away",
        "mv /out/jobs/small /out/jobs/away",
        "mv /out/runs/x /out/runs/away",
        "mv /out/runs /out/away",
        "mv /out/jobs /out/away",
        "rm -r /out/jobs/small/splits",
        "rm -r /out/runs/x",
    ]
    before = _content(stack.store)
    assert _allowed(stack, "worker", forbidden) == []
    assert _content(stack.store) == before
    shards = "/out/jobs/small/shards"
    own = [
        f"echo x >{shards}/y.tmp-1",
        f"mv {shards}/y.tmp-1 {shards}/y",
        f"ln {shards}/y {shards}/z",
        f"rm {shards}/y",
    ]
    assert _allowed(stack, "worker", own) == own
    assert (stack.store / "jobs/small/shards/z").read_text() == "x\n"


def test_a_trainer_may_write_runs_and_nothing_else(stack: Stack, small_set: Path, trainer_built: None) -> None:
    _finished_job(stack, small_set)
    stack.up("trainer")
    assert _mounts(_inspect(stack)["trainer"]) == MOUNTS["trainer"]
    shard = next((stack.store / "jobs/small/shards").glob("*.tfrecord")).name
    files = (
        "job.json",
        *_plans(stack),
        "manifest.json",
        f"shards/{shard}",
        f"shards/{shard.replace('.tfrecord', '.json')}",
    )
    assert all((stack.store / "jobs/small" / name).exists() for name in files)
    forbidden = [
        *(command for name in files for command in _tampering(f"/out/jobs/small/{name}")),
        "touch /out/x",
        "mkdir /out/jobs/evil",
        "touch /out/jobs/small/shards/x",
        "chmod 0777 /out/jobs/small",
        "mv /out/jobs/small /out/jobs/away",
        "mv /out/runs /out/away",
        "rm -r /out/jobs/small",
    ]
    before = _content(stack.store)
    assert _allowed(stack, "trainer", forbidden) == []
    assert _content(stack.store) == before
    run = "/out/runs/x"
    own = [f"echo x >{run}/y.tmp-1", f"mv {run}/y.tmp-1 {run}/y", "mkdir -p /out/runs/new/plots", f"rm {run}/run.json"]
    assert _allowed(stack, "trainer", own) == own
    assert _allowed(stack, "trainer", ["test -e /data/small"]) == []


def test_a_shard_of_a_worker_is_linked_into_another_job(stack: Stack, small_set: Path) -> None:
    _finished_job(stack, small_set)
    text = stack.submit("/data/small", "--job", "again", "--no-train", "--wait")
    assert_common_outcome(stack, "again")
    shards = sorted((stack.store / "jobs/again/shards").glob("*.tfrecord"))
    assert shards
    assert {path.stat().st_nlink for path in shards} == {2}, text


def test_a_person_looks_into_shards_in_a_workers_container(stack: Stack, small_set: Path) -> None:
    _finished_job(stack, small_set)
    picture = "jobs/small/shards/inspect.png"
    look = ("python", "-m", "worker", "inspect", "small", "--png", f"/out/{picture}")
    text = stack.compose("run", "--rm", "-T", "--no-deps", "worker", *look)
    assert "16 records drawn" in text
    assert (stack.store / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("folder_mode", [0o700, 0o755], ids=oct)
def test_photos_that_only_their_owner_may_read_fail_with_who_tried_and_a_worker_may_be_their_owner(
    stack: Stack, small_set: Path, folder_mode: int
) -> None:
    shutil.copytree(small_set, stack.photos / "small")
    stack.up("--scale", "worker=1", "worker", "producer")
    owner = stack.store.stat()
    for path in (stack.photos / "small", *(stack.photos / "small").rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
        path.chmod(folder_mode if path.is_dir() else 0o600)
    text = stack.submit("/data/small", "--no-train", "--wait", expect=(3,))
    assert f"(as user 10001, group {owner.st_gid}): Permission denied" in " ".join(text.split())
    as_owner = {**stack.environment, "VOC_WORKER_UID": str(owner.st_uid)}
    own = Stack(name=stack.name, folder=stack.folder, environment=as_owner)
    own.up("--scale", "worker=1", "worker", "producer")
    own.producer("retry", "small")
    wait_for((own.store / "jobs/small/manifest.json").exists, within_s=120, what="the manifest")
    assert_common_outcome(own, "small")
    assert sum(receipt["quarantined"] for receipt in own.receipts("small")) == 0


@pytest.mark.parametrize("is_absent", [False, True], ids=["owners-only", "absent"])
def test_a_store_of_before_is_finished(stack: Stack, small_set: Path, is_absent: bool) -> None:
    shutil.copytree(small_set, stack.photos / "small")
    stack.up("producer")
    stack.submit("/data/small", "--no-train")
    stack.compose("down")
    # As a version wrote it whose workers were the user that submits.
    jobs = stack.store / "jobs"
    shards = jobs / "small/shards"
    shards.mkdir(exist_ok=True)
    os.chown(shards, jobs.stat().st_uid, jobs.stat().st_gid)
    for folder in (shards, shards.parent, jobs):
        folder.chmod(0o755)
    if is_absent:
        shards.rmdir()
    stack.up("--scale", "worker=1", "worker", "producer")
    wait_for((stack.store / "jobs/small/manifest.json").exists, within_s=120, what="the manifest")
    assert_common_outcome(stack, "small")


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


def test_what_is_written_into_the_store_is_the_hosts_users_to_read_and_to_remove(stack: Stack, small_set: Path) -> None:
    ids = {"VOC_UID": "4321", "VOC_GID": "4322", "VOC_WORKER_UID": "4323"}
    own = Stack(name=stack.name, folder=stack.folder, environment=ids)
    shutil.copytree(small_set, own.photos / "small")
    own.up("--scale", "worker=1", "worker", "producer")
    own.submit("/data/small", "--no-train", "--wait")
    shards = own.store / "jobs/small/shards"
    for path in (own.store, *own.store.rglob("*")):
        status = path.stat()
        owner = 4323 if path.parent == shards else 4321
        assert (status.st_uid, status.st_gid) == (owner, 4322), path
        is_shared = path == shards or path.parent == shards
        assert bool(status.st_mode & stat.S_IWGRP) == is_shared, path
        assert not status.st_mode & stat.S_IWOTH or path == own.store, path
    own.down()
    remove = ("sh", "-c", "rm -r /out/jobs /out/runs")
    docker("run", "--rm", "-u", "4321:4322", "-v", f"{own.store}:/out", "redis:7-bookworm", *remove)
    assert list(own.store.iterdir()) == []


def test_a_store_of_somebody_else_is_refused_with_the_remedy(stack: Stack) -> None:
    docker("run", "--rm", "-u", "0", "-v", f"{stack.store}:/out", "redis:7-bookworm", "chown", "4242:4242", "/out")
    text = stack.compose("up", "--no-build", "prepare")
    assert "the store belongs to user 4242" in text
    assert "VOC_UID" in text
    assert "exited with code 1" in text
