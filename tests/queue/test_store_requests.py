"""A bucket's requests that must be made again: their connection is reset, or another process has done part of them."""

import uuid

import pytest

from shared.errors import StorageError
from shared.storage import Storage
from shared.storage.objects import Fetched, ObjectStorage
from tests.azure_server import AzureServer, azurite
from tests.object_server import Gateway, ObjectServer, Trouble, Troubled, gateway_before

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


@pytest.mark.parametrize("kind", BUCKETS)
def test_of_an_empty_object_every_span_is_empty(request: pytest.FixtureRequest, kind: str) -> None:
    server: ObjectServer | AzureServer = request.getfixturevalue(kind)
    objects = ObjectStorage(server.url(uuid.uuid4().hex))
    objects.write("empty.jpg", [b""])
    assert objects.fetch("empty.jpg") == objects.fetch("empty.jpg", (0, 10)) == Fetched(content=b"", size_bytes=0)


class Refusing(Gateway):
    """Refuses as Amazon does, naming who asked and for what."""

    def _pass_on(self) -> None:
        who, what = "arn:aws:iam::416416416416:user/voc", f"arn:aws:s3::{self.path}"
        told = f'User: {who} is not authorized to perform: s3:GetObject on resource: "{what}"'
        content = f"<Error><Code>AccessDenied</Code><Message>{told}</Message></Error>".encode()
        self._answer(403, {"Content-Type": "application/xml"}, content)

    do_GET = _pass_on  # noqa: N815  # the name that the library looks for


@pytest.mark.parametrize("span", [None, (0, 10)])
def test_a_refusal_that_says_416_somewhere_makes_no_photo_empty(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, span: tuple[int, int] | None
) -> None:
    with gateway_before(object_server, Refusing) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        objects = ObjectStorage(object_server.url("photos"))
        with pytest.raises(OSError, match=r"^AccessDenied: User: .*IMG_0416\.jpg"):
            objects.fetch("IMG_0416.jpg", span)


def test_a_file_that_cannot_be_created_because_its_bucket_is_gone_is_not_there_already(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway_before(object_server, Troubled, trouble=Trouble("no_bucket")) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        storage = Storage(object_server.url(uuid.uuid4().hex))
        with pytest.raises(StorageError, match=r"cannot create .*/job\.json: NoSuchBucket: "):
            storage.create("jobs/a/job.json", b"{}")
