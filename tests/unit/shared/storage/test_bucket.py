"""Which URLs are a store, whose keys are used, and that no secret is repeated."""

from pathlib import Path

import pytest

from shared.errors import StorageError
from shared.storage import Storage
from shared.storage.bucket import profile_settings

CREDENTIALS = """
[default]
aws_access_key_id = default-id
aws_secret_access_key = default%secret

[work]
aws_access_key_id = work-id
aws_secret_access_key = work-secret
aws_session_token = work-token
"""
CONFIG = """
[default]
region = eu-central-1

[profile work]
region = eu-west-1
output = json

[profile sso]
sso_session = corporate
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment that names a person's profiles."""
    (tmp_path / "credentials").write_text(CREDENTIALS)
    (tmp_path / "config").write_text(CONFIG)
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_default_profile_has_the_keys_where_nothing_else_is_said(home: dict[str, str]) -> None:
    expected = {"access_key_id": "default-id", "secret_access_key": "default%secret", "region": "eu-central-1"}
    assert profile_settings(home) == expected


def test_a_named_profile_is_taken_with_its_token_and_region(home: dict[str, str]) -> None:
    found = profile_settings({**home, "AWS_PROFILE": "work"})
    assert found.pop("session_token") == "work-token"
    assert found == {"access_key_id": "work-id", "secret_access_key": "work-secret", "region": "eu-west-1"}


def test_keys_and_region_of_the_environment_go_first(home: dict[str, str]) -> None:
    assert profile_settings({**home, "AWS_PROFILE": "work", "AWS_ACCESS_KEY_ID": "mine"}) == {}
    assert profile_settings({**home, "AWS_REGION": "us-west-2"}).get("region") is None


def test_without_a_profile_there_is_nothing(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert profile_settings({"AWS_SHARED_CREDENTIALS_FILE": absent, "AWS_CONFIG_FILE": absent}) == {}


@pytest.mark.parametrize("name", ["sso", "unknown"])
def test_a_named_profile_without_keys_is_an_error(home: dict[str, str], name: str) -> None:
    with pytest.raises(StorageError, match=f"AWS_PROFILE={name}: .*credentials has no aws_access_key_id"):
        profile_settings({**home, "AWS_PROFILE": name})


def test_a_file_of_no_profiles_is_an_error(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("secret-word without a section\n")
    with pytest.raises(StorageError, match=r"credentials: expected a file of AWS profiles") as refused:
        profile_settings(home)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:secret-word@bucket/x",
        "s3://secret-word@bucket",
        "s3://me:secret-word/with-slash@bucket/x",
        "gs://bucket/x?key=secret-word",
        "az://box/x?sv=1&sig=secret-word",
        "https://me:secret-word@host/bucket",
        "s3://bucket/x#secret-word",
        "secret-word://me@bucket",
    ],
)
def test_a_url_with_a_secret_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StorageError, match="credentials come from the environment") as refused:
        Storage(url)
    assert "secret-word" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://host/bucket", "memory://x", "s3:///x", "hdfs://n/x", "://x"])
def test_another_url_is_refused_and_named(url: str) -> None:
    with pytest.raises(StorageError, match=f"{url}: expected a folder, or s3://, gs:// or az://"):
        Storage(url)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/b/", "gs://bucket/a"])
def test_a_bucket_is_no_folder_of_this_machine(url: str, home: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    storage = Storage(url)
    assert not storage.is_local
    assert storage.url("jobs") == f"{url.rstrip('/')}/jobs"
    with pytest.raises(StorageError, match="this needs a store in a local folder"):
        storage.local_path("jobs")
