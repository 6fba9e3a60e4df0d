"""The lock of a local run on a job, and whether a local run holds it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.errors import PlanError
from shared.jobs.paths import JobPaths
from shared.storage import Storage


@contextmanager
def lock_for_local_run(storage: Storage, name: str) -> Iterator[Callable[[], None]]:
    """Keep other local runs, and services, off the job `name`: each Redis knows only its own leases.

    The block gets a function that raises a PlanError if another local run has taken the job over, which happens when
    this one stood still.

    Raises:
        PlanError: Another local run has the job.
        StorageError: The lock cannot be written or taken.
    """
    key = JobPaths(name).local_lock
    with storage.locked(key) as is_ours:
        if is_ours is None:
            raise PlanError(
                f"job {name}: another --local command works on it already (it holds {storage.url(key)}); "
                "let it end, or stop it with Ctrl-C and give this command again"
            )

        def require() -> None:
            if not is_ours():
                raise PlanError(f"job {name}: another --local command took it over while this one stood still")

        yield require


def has_local_run(storage: Storage, name: str) -> bool:
    """Whether a local run is at work on the job `name`; of a store in a folder, only runs on this machine are seen."""
    return storage.is_locked(JobPaths(name).local_lock)
