"""The settings of the trainer (`VOC_*`)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field

from shared.settings import CommonSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFolder:
    """A folder for copies of shards, and how many bytes they may take."""

    path: Path
    most_bytes: int


_CACHE_PATH: Final = Path("~/.cache/voc2tflite/shards")
_CACHE_GB: Final = 20.0
USUAL_FOLDER: Final = CacheFolder(path=_CACHE_PATH.expanduser(), most_bytes=int(_CACHE_GB * 1e9))


class TrainerSettings(CommonSettings):
    """What the trainer adds to the common settings."""

    run_lease_s: float = Field(default=60.0, ge=1, le=3600, description="Seconds until a dead trainer's run is free")
    stall_s: float = Field(
        default=600.0,
        ge=1,
        description="Seconds after which a training step or phase that has not ended ends the trainer",
    )
    soft_stop_s: float = Field(default=60.0, ge=1, description="Seconds to save and give a run back when asked to stop")
    heartbeat_file: Path | None = Field(
        default=None, description="File that is touched while Redis answers; for health checks"
    )
    replicas: int | None = Field(default=None, ge=1, le=64, description="Logical CPU devices to train on; for tests")
    threads: int | None = Field(default=None, ge=1, description="Threads of TensorFlow; default: all cores")
    cache_mb: int = Field(default=2048, ge=0, description="Decoded pictures kept in memory, in MB at most")
    shard_cache: Path = Field(
        default=_CACHE_PATH, description="Folder for copies of a bucket's shards; trainers may share it"
    )
    shard_cache_gb: float = Field(
        default=_CACHE_GB, gt=0, description="Disk that copies of shards may take, not counting the 64 handed out last"
    )

    def shard_folder(self) -> CacheFolder:
        """Where copies of shards in a bucket are kept, and how many bytes they may take."""
        return CacheFolder(path=self.shard_cache.expanduser(), most_bytes=int(self.shard_cache_gb * 1e9))
