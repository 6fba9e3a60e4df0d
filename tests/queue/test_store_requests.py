"""A bucket's requests that must be made again: their connection is reset, or another process has done part of them."""

import uuid

import pytest

from shared.storage import Storage
from shared.storage.objects import ObjectStorage
from tests.azure_server import AzureServer, azurite
from tests.object_server import ObjectServer, Trouble, Troubled, gateway_before

BUCKETS = ["object_server", *(["azure_server"] if azurite() else [])]
# More than Azure removes by one request.
MANY = 300


@pytest.mark.parametrize("kind", BUCKETS)
def test_what_the_server_did_before_the_connection_broke_is_done_once(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: ObjectServer | AzureServer = request.getfixturevalue(kind)
    trouble = Trouble()
    with gateway_before(server, Troubled, trouble=trouble) as url:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value.replace(f"http://{server.address}", url))
        storage = Storage(server.url(uuid.uuid4().hex))
        trouble.kind = "reset"
        storage.write("jobs/a", b"x")
        assert storage.create("jobs/b", b"y")
        assert not storage.create("jobs/b", b"z")
        assert storage.read("jobs/b") == b"y"
        assert storage.list_names("jobs") == ["a", "b"]
        storage.remove("jobs/a")
        assert storage.list_names("jobs") == ["b"]
        storage.write("jobs/c", b"")
        trouble.times.clear()
        storage.remove_tree("jobs")
        assert any(path.endswith(("?delete", "&comp=batch")) for path in trouble.times), trouble.times
        assert storage.list_names("jobs") == []
        objects = ObjectStorage(storage.url(""))
        first = objects.swap("lock", b"1", None)
        trouble.times.clear()
        second = objects.swap("lock", b"2", first)
        assert trouble.times
        assert None not in (first, second)
        assert objects.swap("lock", b"3", first) is None


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_tree_that_another_process_removes_too_is_removed_whole(
    request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: ObjectServer | AzureServer = request.getfixturevalue(kind)
    objects = ObjectStorage(server.url(uuid.uuid4().hex))
    for number in range(MANY):
        objects.write(f"jobs/{number:03d}", [b""])
    listed = list(objects._pages("jobs"))
    objects.remove("jobs/000")
    monkeypatch.setattr(objects, "_pages", lambda _: listed)
    objects.remove_tree("jobs")
    assert objects.names("jobs") == []
