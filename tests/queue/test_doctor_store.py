"""`doctor` races for a file of the store, and names a store that lets more than one win."""

import json
import uuid
from typing import Any

import pytest

from shared.storage import Storage
from tests.cluster import Cluster
from tests.object_server import Forgetful, ObjectServer, Trouble, Troubled, gateway_before


def commit_check(cluster: Cluster, **environment: str) -> dict[str, Any]:
    """What `doctor` says of the store's commits."""
    told = cluster.producer("doctor", "--json", check=False, **environment)
    found = json.loads(told.stdout)
    checks = {check["name"]: check for check in (found["checks"] if isinstance(found, dict) else found)}
    assert checks["store"]["is_well"], checks["store"]
    return dict(checks["commit"])


def test_doctor_finds_that_a_folder_can_commit(cluster: Cluster) -> None:
    check = commit_check(cluster)
    assert check["is_well"]
    assert check["found"] == "of 8 clients that create one file at once, one succeeds"
    assert cluster.storage().list_names("") == []


def test_doctor_finds_that_a_bucket_can_commit(cluster: Cluster, object_server: ObjectServer) -> None:
    url = object_server.url(uuid.uuid4().hex)
    assert commit_check(cluster, VOC_STORE=url)["is_well"]
    assert Storage(url).list_names("") == []


def test_a_gateway_that_forgets_conditions_is_named(cluster: Cluster, object_server: ObjectServer) -> None:
    url = object_server.url(uuid.uuid4().hex)
    with gateway_before(object_server, Forgetful) as gateway:
        check = commit_check(cluster, VOC_STORE=url, AWS_ENDPOINT_URL=gateway)
    assert not check["is_well"]
    assert check["found"].startswith(f"{url} cannot commit: 8 clients created one file at once, ")
    assert "SeaweedFS from 4.48" in check["advice"]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("denied", "these credentials must be right, and be allowed to list the bucket, and to read, write and remove"),
        ("expired", "these credentials must be right"),
        ("no_bucket", "is the bucket's name right"),
        ("", "does its server answer (AWS_ENDPOINT_URL)?"),
    ],
)
def test_what_to_do_about_a_bucket_fits_what_is_wrong_with_it(
    cluster: Cluster, object_server: ObjectServer, kind: str, advice: str
) -> None:
    facts = {"VOC_STORE": object_server.url(uuid.uuid4().hex), "VOC_REQUEST_TIMEOUT_S": "1"}
    with gateway_before(object_server, Troubled, trouble=Trouble(kind)) as gateway:
        url = gateway if kind else "http://127.0.0.1:9"
        told = cluster.producer("doctor", "--json", check=False, **facts, AWS_ENDPOINT_URL=url)
    assert told.returncode == 1
    checks = json.loads(told.stdout)
    check = next(each for each in checks if each["name"] == "store")
    assert not check["is_well"]
    assert check["advice"].startswith(advice), check
