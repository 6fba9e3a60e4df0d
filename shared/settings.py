"""Settings that every service shares, read from the environment (`VOC_*`) at the entry points only."""

from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class CommonSettings(BaseSettings):
    """Where the broker, the pictures and the store are, and how to log."""

    model_config = SettingsConfigDict(env_prefix="VOC_", extra="ignore", env_ignore_empty=True)

    broker_url: SecretStr | None = Field(
        default=None,
        description="Redis: redis://, rediss:// (TLS) or unix://; empty = an embedded broker (submit --local)",
    )
    broker_password_file: Path | None = Field(default=None, description="File that holds the broker's password")
    data_root: Path = Field(default=Path("/data"), description="Folder of the data sets; nothing outside is read")
    store: str = Field(default="out", description="Where jobs and runs are kept: a folder, or an fsspec URL")
    log_format: Literal["text", "json"] = Field(default="json", description="Log lines for people or for machines")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level logged")
    lease_s: float = Field(default=15.0, ge=1, le=600, description="Seconds until a dead worker's shard is free")
    attempts: int = Field(default=5, ge=1, le=100, description="Claims without success until a shard fails")
    fault: str = Field(default="", description="For tests: fault points at which the process kills itself")

    def broker(self) -> str:
        """The broker's URL with its password; never log it.

        Raises:
            ValueError: No broker is configured.
        """
        if self.broker_url is None:
            raise ValueError("VOC_BROKER_URL is not set")
        url = self.broker_url.get_secret_value()
        if self.broker_password_file is None:
            return url
        parts = urlsplit(url)
        password = quote(self.broker_password_file.read_text().strip(), safe="")
        host = parts.netloc.rpartition("@")[2]
        user = (parts.username or "") if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{host}"))
