"""The settings of the workers (`VOC_*`)."""

from pathlib import Path

from pydantic import Field

from shared.settings import CommonSettings


class WorkerSettings(CommonSettings):
    """What a worker adds to the common settings."""

    stall_s: float = Field(
        default=60.0,
        ge=1,
        description="Seconds after which a picture that is still being decoded ends its worker process",
    )
    isolation_memory_mb: int = Field(default=4096, ge=512, description="Memory of the child of a second attempt")
    soft_stop_s: float = Field(
        default=20.0, ge=1, description="Seconds to finish or give back a shard when asked to stop"
    )
    heartbeat_file: Path | None = Field(
        default=None, description="File that is touched while Redis answers; for health checks"
    )
