"""A store after months of use -> what its jobs take on disk, and what nobody needs any more."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from producer.jobs.removal import remove_files
from producer.state.local_lock import has_local_run
from producer.state.runs import requests_by_job, runs_of
from producer.state.status import JobStatus
from producer.state.stored import job_names, run_state, stored_state
from shared.errors import FormatError, StorageError
from shared.jobs.identity import find_job, is_removed, read_job_file, readable_jobs, readable_requests
from shared.jobs.paths import JobPaths, RunPaths, labels_of
from shared.storage import TEMPORARY_MARK, Stamp, Storage

Kind = Literal["checkpoints", "tensorboard", "leftover", "orphan", "weights", "unpacked"]

# Why things of each kind are not needed, for a person.
REASONS: Final[Mapping[Kind, str]] = {
    "checkpoints": "checkpoints of a finished run: its model.keras stays; only `export --step` needs them",
    "tensorboard": "TensorBoard logs of a finished run: its results.csv, curves and pictures stay",
    "leftover": "left behind by a command that was killed",
    "orphan": "a run whose job was removed",
    "weights": "weights that no job uses any more",
    "unpacked": "photos unpacked from an archive, which no job uses any more",
}

# Anything younger may be in use: a submit writes weights and plan before `job.json`.
SAFE_S: Final = 86_400.0

# A killed `lint --pixels` leaves its dry job.
_LINT_JOB: Final = re.compile(r"lint-[0-9a-f]{12}")
_PLAN: Final = re.compile(r"(?:plan|findings)-([0-9a-f]{32})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """A file or folder that nobody needs: its key, why, and its bytes on disk."""

    kind: Kind
    key: str
    size_bytes: int


def bytes_below(storage: Storage, folder: str) -> int:
    """The bytes of all files in `folder` and below; a file with several names (hard links) counts once."""
    stamps = storage.walk(folder).values()
    return _sum(stamps) if storage.is_local else sum(stamp.size_bytes for stamp in stamps)  # a bucket has no links


def sized(storage: Storage, status: JobStatus) -> JobStatus:
    """The status with what the job and its runs take on disk; unchanged if the store is not a local folder.

    Shards that several jobs share count in each of them.
    """
    if not storage.is_local:
        return status
    paths = JobPaths(status.job)
    # These folders may hold 100,000 files, so they are listed and not walked.
    listed = [stamp for folder in (paths.root, paths.shards) for stamp in storage.list_stamps(folder).values()]
    walked = [f"{paths.root}/splits", paths.failed, paths.notified]
    walked += [RunPaths(str(run["run"])).root for run in status.runs]
    size_bytes = _sum(listed) + sum(bytes_below(storage, folder) for folder in walked)
    return replace(status, size_bytes=size_bytes)


def prunable(storage: Storage) -> list[Prunable]:
    """What may be removed from a store, the largest first.

    Raises:
        StorageError: It cannot be listed.
    """
    found = [
        *_of_finished_runs(storage),
        *_leftovers(storage),
        *_orphans(storage),
        *_unused_weights(storage),
        *_unused_photos(storage),
    ]
    return sorted((each for each in found if each.size_bytes), key=lambda each: (-each.size_bytes, each.key))


def prune(storage: Storage, found: Iterable[Prunable]) -> None:
    """Remove what `prunable` has found.

    Raises:
        StorageError: The store refused.
    """
    for each in found:
        name = each.key.partition("/")[2]
        job = read_job_file(storage, name) if each.kind == "leftover" and each.key == JobPaths(name).root else None
        if job is not None:
            remove_files(storage, job)
        elif storage.exists(each.key):
            storage.remove(each.key)
        else:
            storage.remove_tree(each.key)


def _of_finished_runs(storage: Storage) -> Iterator[Prunable]:
    requests = requests_by_job(storage)
    for job in readable_jobs(storage):
        if has_local_run(storage, job.job) or not stored_state(storage, job, 1.0).is_finalized:
            continue
        for asked in runs_of(storage, job, requests):
            root = RunPaths(asked.run).root
            kinds: tuple[Kind, ...] = ("checkpoints", "tensorboard")
            if run_state(storage, asked) == "DONE" and storage.exists(f"{root}/model.keras"):
                yield from (_prunable(storage, kind, f"{root}/{kind}") for kind in kinds)


def _leftovers(storage: Storage) -> Iterator[Prunable]:
    """Half-written and half-removed files and folders, dry jobs of lint, plans of submits that made no job."""
    for folder in ("jobs", "runs", "weights"):
        if storage.is_local and storage.local_path(folder).is_dir():
            names = sorted(path.name for path in storage.local_path(folder).iterdir())
            keys = (f"{folder}/{name}" for name in names if TEMPORARY_MARK in name)
            yield from (_prunable(storage, "leftover", key) for key in keys if _is_old(storage, key))
    for name in job_names(storage):
        root = JobPaths(name).root
        try:
            job = read_job_file(storage, name)
        except (FormatError, StorageError):
            continue
        if job is None or not _is_old(storage, root):
            continue
        if is_removed(storage, job) or (job.spec.dry and _LINT_JOB.fullmatch(name)):
            yield _prunable(storage, "leftover", root)
            continue
        plans = ((match[1], file) for file in storage.list_names(root) if (match := _PLAN.fullmatch(file)))
        others = (f"{root}/{file}" for incarnation, file in plans if incarnation != job.incarnation)
        yield from (_prunable(storage, "leftover", key) for key in others if _is_old(storage, key))


def _orphans(storage: Storage) -> Iterator[Prunable]:
    for asked in readable_requests(storage):
        root = RunPaths(asked.run).root
        try:
            job = find_job(storage, asked.job)
        except (FormatError, StorageError):
            continue  # the run may be of this job, which another version wrote
        if (job is None or job.incarnation != asked.incarnation) and _is_old(storage, root):
            yield _prunable(storage, "orphan", root)


def _unused_weights(storage: Storage) -> Iterator[Prunable]:
    """Files given to `--weights` and `--from` that no job uses; nothing if any job or run cannot be read."""
    jobs, requests = list(readable_jobs(storage)), list(readable_requests(storage))
    folders = [name for name in storage.list_names("runs") if storage.exists(RunPaths(name).request)]
    if len(jobs) < len(job_names(storage)) or len(requests) < len(folders):
        return
    asked = [*requests, *(job.run for job in jobs if job.run is not None)]
    used = {run.weights for run in asked}
    used |= {key for run in asked if run.start is not None for key in (run.start, labels_of(run.start))}
    for name in storage.list_names("weights"):
        key = f"weights/{name}"
        if key not in used and _is_old(storage, key):
            yield _prunable(storage, "weights", key)


def _unused_photos(storage: Storage) -> Iterator[Prunable]:
    """Photos unpacked from archives for jobs that were removed since; nothing if any job cannot be read."""
    jobs = list(readable_jobs(storage))
    if not storage.is_local or len(jobs) < len(job_names(storage)):
        return
    for name in storage.list_names("unpacked"):
        key = f"unpacked/{name}"
        folder = storage.local_path(key).resolve()
        if not any(Path(job.dataset).is_relative_to(folder) for job in jobs) and _is_old(storage, key):
            yield _prunable(storage, "unpacked", key)


def _prunable(storage: Storage, kind: Kind, key: str) -> Prunable:
    stamp = storage.stamp_or_none(key)
    return Prunable(kind=kind, key=key, size_bytes=bytes_below(storage, key) if stamp is None else stamp.size_bytes)


def _is_old(storage: Storage, key: str) -> bool:
    """Whether a file, or a folder and what is in it, has not been written to for a day."""
    if storage.is_local:
        path = storage.local_path(key)
        written = [each.lstat().st_mtime for each in ([path, *path.iterdir()] if path.is_dir() else [path])]
    else:
        stamps = [storage.stamp_or_none(key), *storage.walk(key).values()]
        written = [stamp.written_at for stamp in stamps if stamp is not None]
    return max(written, default=0.0) < time.time() - SAFE_S


def _sum(stamps: Iterable[Stamp]) -> int:
    return sum({stamp.mark: stamp.size_bytes for stamp in stamps}.values())
