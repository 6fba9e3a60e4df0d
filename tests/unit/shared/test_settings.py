"""Settings from the environment; secrets from files, never shown."""

from pathlib import Path

import pytest

from shared.errors import OptionError
from shared.settings import CommonSettings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://redis:6379/0", "redis://:s%40cret@redis:6379/0"),
        ("rediss://worker@redis:6380/0", "rediss://worker:s%40cret@redis:6380/0"),
    ],
)
def test_password_file_goes_into_the_url(tmp_path: Path, url: str, expected: str) -> None:
    password = tmp_path / "password"
    password.write_text("s@cret\n")
    assert CommonSettings(broker_url=url, broker_password_file=password).broker() == expected


def test_broker_url_is_not_shown_in_the_settings_own_text() -> None:
    assert "s3cret" not in repr(CommonSettings(broker_url="redis://:s3cret@redis/0"))


def test_no_broker_is_said_so() -> None:
    with pytest.raises(OptionError, match="set VOC_BROKER_URL"):
        CommonSettings(broker_url=None).broker()
