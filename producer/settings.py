"""Settings of the producer and its service (`VOC_*`)."""

from pathlib import Path

from pydantic import Field

from shared.settings import CommonSettings


class ProducerSettings(CommonSettings):
    """What the producer adds to the common settings."""

    tick_s: float = Field(default=2.0, gt=0, le=60, description="Seconds between two rounds of the reconciler")
    listing_s: float = Field(default=60.0, gt=0, description="Seconds between two listings of the store")
    lost_after_s: float = Field(default=30.0, gt=0, description="Queued, never claimed and gone: queued again after it")
    failed_share: float = Field(
        default=0.1, ge=0, le=1, description="Above this share of failed shards a job has failed"
    )
    heartbeat_file: Path | None = Field(default=None, description="Touched at every round; for health checks")
    metrics_port: int | None = Field(default=None, ge=1, le=65535, description="Prometheus metrics are served here")
