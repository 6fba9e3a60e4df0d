"""Which server an embedded run starts: the bundled one before whatever is on PATH, and none that is too old."""

from pathlib import Path

import pytest

from producer.doctor.setup import check_setup
from producer.local.redis_server import PACKAGE, choose_server, embedded_server, server_or_url, servers_here
from producer.settings import ProducerSettings
from shared.errors import BrokerError


def make_server(folder: Path, said: str, name: str = "redis-server") -> Path:
    """A program that says which server it is, and is none."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    return program


def test_the_bundled_server_goes_before_the_one_on_path(tmp_path: Path) -> None:
    make_server(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    server = choose_server(servers_here(str(tmp_path)))
    assert server.origin == PACKAGE
    assert server.name == "Valkey"
    assert server.release >= (7, 2)


def test_without_a_bundled_one_path_is_searched(tmp_path: Path) -> None:
    program = make_server(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    candidates = [found for found in servers_here(str(tmp_path)) if found[1] != PACKAGE]
    server = choose_server(candidates)
    assert (server.path, server.release) == (program, (7, 0, 15))
    assert str(server) == f"Redis 7.0.15 on PATH ({program})"


@pytest.mark.parametrize(
    "said",
    ["Redis server v=6.0.16 sha=0:0", "error while loading shared libraries: liblzf.so.1"],
    ids=["old", "broken"],
)
def test_a_server_that_is_too_old_or_does_not_run_is_passed_over(tmp_path: Path, said: str) -> None:
    bad = make_server(tmp_path / "one", said)
    good = make_server(tmp_path / "two", "Valkey server v=8.0.1 sha=0:0", "valkey-server")
    assert choose_server([(bad, "on PATH"), (good, "on PATH")]).path == good


def test_where_none_will_do_each_is_named_and_what_to_do(tmp_path: Path) -> None:
    old = make_server(tmp_path / "one", "Redis server v=6.0.16 sha=0:0")
    gone = tmp_path / "gone"
    with pytest.raises(BrokerError) as told:
        choose_server([(old, "on PATH"), (gone, "on PATH")])
    assert f"{old}: found Redis 6.0.16, expected 6.2 or newer" in str(told.value)
    assert f"{gone}: " in str(told.value)
    assert "VOC_BROKER_URL" in str(told.value)
    with pytest.raises(BrokerError, match="no broker: set VOC_BROKER_URL"):
        choose_server([])


def test_doctor_names_the_server_that_an_embedded_run_would_start(tmp_path: Path) -> None:
    checks = check_setup(ProducerSettings(broker_url=None, store=str(tmp_path)))
    broker = next(check for check in checks if check.name == "broker")
    assert broker.is_well
    assert broker.found == f"none configured: submit runs an embedded one, {embedded_server()}"


def test_a_broker_that_is_set_is_taken_where_no_server_can_be_started_and_only_there() -> None:
    assert server_or_url("redis://there", []) == "redis://there"
    assert server_or_url("redis://there", servers_here()) == embedded_server()
    with pytest.raises(BrokerError, match="no broker: set VOC_BROKER_URL"):
        server_or_url(None, [])
