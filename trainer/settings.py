"""Settings of the trainer (`VOC_*`)."""

from pathlib import Path

from pydantic import Field

from shared.settings import CommonSettings


class TrainerSettings(CommonSettings):
    """What the trainer adds to the common settings."""

    run_lease_s: float = Field(default=60.0, ge=1, le=3600, description="Seconds until a dead trainer's run is free")
    stall_s: float = Field(
        default=600.0, ge=1, description="A training step or phase that takes longer ends the trainer"
    )
    soft_stop_s: float = Field(default=60.0, ge=1, description="Time to save and give a run back when asked to stop")
    heartbeat_file: Path | None = Field(default=None, description="Touched while Redis answers; for health checks")
    replicas: int | None = Field(default=None, ge=1, le=64, description="Logical CPU devices to train on; for tests")
    threads: int | None = Field(default=None, ge=1, description="Threads of TensorFlow; default: all cores")
    cache_mb: int = Field(default=2048, ge=0, description="Decoded pictures are kept in memory up to this size")
