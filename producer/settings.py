"""Settings of the producer and its service (`VOC_*`)."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from shared.settings import CommonSettings


def http_url(url: SecretStr) -> SecretStr:
    """Check that `url` is an http or https URL; a ValueError otherwise."""
    parts = urlsplit(url.get_secret_value())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected a URL that begins with http:// or https://")
    return url


class ProducerSettings(CommonSettings):
    """What the producer adds to the common settings."""

    tick_s: float = Field(default=2.0, gt=0, le=60, description="Seconds between two rounds of the reconciler")
    listing_s: float = Field(default=60.0, gt=0, description="Seconds between two listings of the store")
    lost_after_s: float = Field(
        default=30.0, gt=0, description="Seconds until work whose message got lost is queued again"
    )
    failed_share: float = Field(
        default=0.1, ge=0, le=1, description="Above this share of failed shards a job has failed"
    )
    heartbeat_file: Path | None = Field(
        default=None, description="File that is touched at every round; for health checks"
    )
    notify_url: Annotated[SecretStr, AfterValidator(http_url)] | None = Field(
        default=None,
        description="URL that gets a small JSON at the end of a job; --notify overrides it",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="`/metrics` for Prometheus and `/demand` for an autoscaler are served here",
    )
