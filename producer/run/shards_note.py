"""How far a job's shards are -> `jobs/<job>/progress.json`, for programs that see the store but not Redis."""

import logging
import time
from typing import Final

from producer.state.progress_note import COUNTED
from producer.state.status import JobStatus
from shared.errors import StorageError
from shared.jobs.identity import make_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.storage import Storage

logger = logging.getLogger(__name__)

_NOTE_EVERY_S: Final = 2.0


class ShardsNote:
    """Notes how far a job's shards are, for as long as somebody waits for the job here."""

    def __init__(self, storage: Storage, job: Job) -> None:
        self._storage, self._job = storage, job
        self._noted: tuple[float, str] = (float("-inf"), "")

    def write(self, status: JobStatus) -> None:
        """Note `status`: every few seconds while shards are written, and once when the state changes."""
        at, state = self._noted
        is_open = status.state in ("SUBMITTED", "RUNNING")
        if state == status.state and not (is_open and time.monotonic() - at >= _NOTE_EVERY_S):
            return
        self._noted = (time.monotonic(), status.state)
        facts = {name: getattr(status, name) for name in (*COUNTED, "queued", "images_done", "eta_s")}
        content = make_note(
            self._job.incarnation, **facts, holders=list(status.holders), at=round(time.time(), 3), held=is_open
        )
        try:
            self._storage.write(JobPaths(self._job.job).progress, content)
        except StorageError as error:
            logger.warning("progress_not_noted", extra={"job": self._job.job, "reason": str(error)})
