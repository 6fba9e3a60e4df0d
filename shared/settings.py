"""The settings that all services share, read from the environment (`VOC_*`) only at the entry points."""

from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.errors import OptionError


class RequestSettings(BaseSettings):
    """What a client of a bucket reads from the environment besides its credentials."""

    model_config = SettingsConfigDict(env_prefix="VOC_", extra="ignore", env_ignore_empty=True)

    request_timeout_s: float = Field(
        default=120.0, ge=1, le=3600, description="Seconds after which a request to a bucket has failed"
    )


class CommonSettings(RequestSettings):
    """Where the broker, the pictures and the store are, and how to log."""

    broker_url: SecretStr | None = Field(
        default=None,
        description="Redis: redis://, rediss:// (TLS) or unix://; if empty, and for --local, an embedded one is used",
    )
    broker_password_file: Path | None = Field(default=None, description="File that holds the broker's password")
    data_root: str = Field(
        default="/data", description="Where data sets lie: a folder, or s3://, gs://, az://; nothing outside is read"
    )
    store: str = Field(default="out", description="Where jobs and runs are kept: a folder, or s3://, gs://, az://")
    log_format: Literal["text", "json"] = Field(default="json", description="Log lines for people or for machines")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Lowest level that is logged"
    )
    lease_s: float = Field(default=15.0, ge=1, le=600, description="Seconds until a dead worker's shard is free")
    attempts: int = Field(default=5, ge=1, le=100, description="A shard fails after this many claims without success")
    fault: str = Field(default="", description="For tests: fault points at which the process kills itself")

    def broker_place(self) -> str:
        """The broker's URL as it may be shown: without user, password and options.

        Raises:
            OptionError: No broker is configured, or its URL is not a Redis URL.
        """
        parts = urlsplit(self._broker_url())
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))

    def broker(self) -> str:
        """The broker's URL with its password; never log it.

        Raises:
            OptionError: No broker is configured, its URL is not a Redis URL, or its password cannot be read.
        """
        url = self._broker_url()
        if self.broker_password_file is None:
            return url
        parts = urlsplit(url)
        try:
            password = quote(self.broker_password_file.read_text().strip(), safe="")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise OptionError(f"VOC_BROKER_PASSWORD_FILE: {self.broker_password_file}: {reason}") from error
        host = parts.netloc.rpartition("@")[2]
        user = (parts.username or "") if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))

    def _broker_url(self) -> str:
        if self.broker_url is None:
            raise OptionError(
                "no broker is configured: set VOC_BROKER_URL (redis://HOST, rediss://HOST or unix://PATH); "
                "`submit --local` needs none"
            )
        url = self.broker_url.get_secret_value()
        expected = "expected redis://HOST[:PORT], rediss://HOST[:PORT] (TLS) or unix://PATH"
        try:
            scheme, _port = urlsplit(url).scheme, urlsplit(url).port
        except ValueError as error:
            raise OptionError(f"VOC_BROKER_URL: {expected}; the port is a number up to 65535") from error
        if scheme not in ("redis", "rediss", "unix"):
            raise OptionError(f"VOC_BROKER_URL: {expected}")
        return url
