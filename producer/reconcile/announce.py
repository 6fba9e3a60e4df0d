"""The end of a job or of a run -> one small JSON, posted to the URL of the settings; nobody else learns that URL.

A note in the job's folder is created before the post, so that only one of several processes posts. If the post fails,
the note is removed, and the next look at the job tries again, for up to a day.
"""

import hashlib
import json
import logging
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from producer.settings import ProducerSettings
from producer.state.runs import runs_of
from producer.state.status import JobStatus, job_status
from producer.state.stored import TERMINAL, is_cancelled
from shared.errors import StorageError
from shared.jobs.identity import make_note, read_note
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from shared.text import counted

logger = logging.getLogger(__name__)

# Seconds for one try, and before each of the tries.
TIMEOUT_S: Final = 5.0
WAITS_S: Final = (0.0, 1.0, 4.0)

# What ended longer ago is not posted: a service that was given a URL today does not report last month's jobs.
NEWS_S: Final = 86_400.0

# The file written when a URL is first used on a store; what had ended before is not announced.
SINCE: Final = "notify.json"


class Announcer:
    """Posts the ends of jobs and runs, each once; without a URL it does nothing.

    `failures` has one line for each post that failed, for whoever waits for the end.
    """

    def __init__(self, storage: Storage, settings: ProducerSettings) -> None:
        self._storage, self._settings = storage, settings
        self._url = settings.notify_url.get_secret_value() if settings.notify_url is not None else None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="announce")
        self._is_stopping = threading.Event()
        self._told: set[str] = set()
        self._unheard: set[str] = set()
        self.failures: list[str] = []

    def unheard(self) -> set[str]:
        """The jobs with an end that could not be posted; the next look at them tries again."""
        return set(self._unheard)

    def see(self, job: Job) -> None:
        """Post, in a thread, each end of `job` or its runs that was not announced yet."""
        if self._url is None or job.spec.dry:
            return
        self._unheard.discard(job.job)
        try:
            if not self._storage.exists(SINCE):
                self._storage.create(SINCE, b"{}")
            for asked in runs_of(self._storage, job) or (None,):
                self._see_run(job, asked)
        except StorageError as error:
            logger.warning("store_refuses", extra={"job": job.job, "reason": str(error)})

    def _see_run(self, job: Job, asked: RunSpec | None) -> None:
        if asked is not None and asked.fold:
            return  # the end of its audit is announced instead
        seen = job.model_copy(update={"run": asked})
        status = job_status(self._storage, None, seen, self._settings.failed_share)
        if status.runs:  # a run that ended before its job was cancelled
            status = replace(status, state=status.runs[0]["state"])
        if status.state not in TERMINAL:
            return
        mark, ended_at = _end_of(self._storage, seen, status)
        unit = asked.run if asked is not None else job.job
        key = f"{JobPaths(job.job).notified}/{unit}-{mark}-{status.state}.json"
        if key in self._told:
            return
        self._told.add(key)
        is_news = ended_at > time.time() - NEWS_S and ended_at >= self._storage.written_at(SINCE)
        if is_news and self._storage.create(key, make_note(job.incarnation, at=time.time())):
            self._pool.submit(self._announce, key, announcement(job, status))

    def stop(self, *, wait: bool = False) -> None:
        """Stop; without `wait` only a post under way is finished, with `wait` all posts and their retries are."""
        if not wait:
            self._is_stopping.set()
        self._pool.shutdown(wait=True)

    def _announce(self, key: str, facts: dict[str, Any]) -> None:
        reason = "stopped"
        for wait_s in WAITS_S:
            if self._is_stopping.wait(wait_s):
                break
            try:
                post(str(self._url), facts)
            except (OSError, HTTPException, ValueError) as error:
                # The text of an error may hold the URL; its type, or the server's answer, does not.
                reason = f"HTTP {error.code}" if isinstance(error, HTTPError) else type(error).__name__
                continue
            logger.info("announced", extra={"job": facts["job"], "state": facts["state"]})
            return
        logger.warning("not_announced", extra={"job": facts["job"], "state": facts["state"], "reason": reason})
        self._told.discard(key)
        self._unheard.add(str(facts["job"]))
        self.failures.append(
            f"{facts['job']}: its end was not posted to the URL of --notify or VOC_NOTIFY_URL ({reason})"
        )
        try:
            self._storage.remove(key)
        except StorageError as error:
            logger.warning("store_refuses", extra={"job": facts["job"], "reason": str(error)})


def _end_of(storage: Storage, job: Job, status: JobStatus) -> tuple[str, float]:
    """A mark that identifies the end that a job, seen with one run, has come to, and when that was (Unix time in s).

    It is made from the notes of the end, not from the number of retries: those may have been of other runs, or have
    found nothing to do.
    """
    paths, run = JobPaths(job.job), RunPaths(job.run.run) if job.run is not None else None
    if status.state == "CANCELLED" and is_cancelled(storage, job):
        keys = [paths.cancelled]
    elif run is not None and (status.state != "FAILED" or storage.exists(run.run) or storage.exists(run.failed)):
        keys = [{"DONE": run.run, "CANCELLED": run.cancelled}.get(status.state, run.failed)]
    else:
        failures = [f"{paths.failed}/{name}" for name in storage.list_names(paths.failed)]
        keys = [paths.manifest] if status.state == "DONE" else failures or [paths.manifest]  # without a photo
    if run is not None and keys == [run.failed] and not storage.exists(run.failed):
        keys = [run.run, paths.manifest]  # trained on other shards than those that are here
    keys = [key for key in keys if storage.exists(key)]
    digest, moments = hashlib.sha256(), [0.0]
    for key in keys:
        at = (read_note(storage, key, job.incarnation) or {}).get("at")
        if isinstance(at, int | float):  # not the whole file: `export` rewrites `run.json` though the run ended once
            digest.update(str(at).encode())
            moments.append(float(at))
        else:
            digest.update(storage.read(key))
            moments.append(storage.written_at(key))
    return digest.hexdigest()[:16], max(moments)


def announcement(job: Job, status: JobStatus) -> dict[str, Any]:
    """What is posted: `text` for chat programs, the rest for programs; mAP as fractions, of the int8 model."""
    run = None if status.run is None else str(status.run["run"])
    error = str((status.run or {}).get("failed") or status.last_error or status.why or "").split("\n")[0][:300]
    name = f"job {job.job}" if run in (None, job.job) else f"run {run} of job {job.job}"
    return {
        "text": f"{name} {_end_text(status, error)}",
        "job": job.job,
        "identity": job.incarnation,
        "run": run,
        "state": status.state,
        "pictures": status.images,
        "shards_failed": status.failed,
        "map50": status.map50,
        "map50_interval": status.map50_interval,
        "map": status.map,
        "map_interval": status.map_interval,
        "objects": status.objects,
        "seconds": status.took_s,
        "error": error if status.state == "FAILED" else None,
    }


def _end_text(status: JobStatus, error: str) -> str:
    """How it ended, in words for a person."""
    if status.state != "DONE":
        return "was cancelled" if status.state == "CANCELLED" else f"failed{f': {error}' if error else ''}"
    took = "" if status.took_s is None else f" after {counted(max(1, round(status.took_s / 60)), 'minute')} of work"
    lost = f", without {counted(status.failed, 'shard')} that failed" if status.failed else ""
    if status.map50 is None:
        return f"is done{took}{lost}"
    facts = (
        []
        if status.map50_interval is None
        else ["{:.1f} to {:.1f}".format(*(100 * at for at in status.map50_interval))]
    )
    facts += [] if status.objects is None else [counted(status.objects, "object")]
    sure = f" ({', '.join(facts)})" if facts else ""
    return f"is done{took}{lost}: mAP50 {100 * status.map50:.1f} %{sure}"


class _NoRedirect(HTTPRedirectHandler):
    """Refuses redirects: a redirected POST would become a GET without its content, and count as accepted."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect."""


def post(url: str, facts: dict[str, Any]) -> None:
    """Post `facts` as JSON; a user and password in the URL become a header.

    Raises:
        OSError: There is no answer, or not in time, or not with a 2xx.
        HTTPException: The answer is not HTTP.
        ValueError: The URL is invalid.
    """
    parts = urlsplit(url)
    headers = {"Content-Type": "application/json", "User-Agent": "voc2tflite"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = Request(address, json.dumps(facts).encode(), headers, method="POST")  # noqa: S310 - http(s) by the settings
    with build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
        pass
