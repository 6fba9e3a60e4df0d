"""What the producer's commands do at their start: the URL of `--notify`."""

import pytest
from pydantic import SecretStr

from producer.cli.session import start_options, with_notify
from producer.settings import ProducerSettings
from shared.errors import OptionError


def notified(url: str) -> SecretStr | None:
    options = start_options(ProducerSettings(), local=True, wait=True, workers=1)
    return with_notify(options, url).settings.notify_url


@pytest.mark.parametrize("url", ["https://host/@topic", "https://host:8080/a?to=me@example.org", "http://host/#@"])
def test_an_at_sign_outside_the_user_and_password_is_allowed(url: str) -> None:
    assert notified(url) == SecretStr(url)


@pytest.mark.parametrize("url", ["https://user:word@host/x", "https://user@host", "http://:word@host/@topic"])
def test_a_password_that_everybody_on_this_machine_could_read_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="use --notify @FILE, or set VOC_NOTIFY_URL") as refused:
        notified(url)
    assert "word@" not in str(refused.value)
