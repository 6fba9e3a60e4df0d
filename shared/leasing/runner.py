"""One unit of work from claim to end: done, given back, failed for now, or failed for good.

It never retries; only the reconciler queues a unit again. It logs these events, with `shard_` or `run_` in front:
`not_claimed` (outcome), `given_back`, `left` (reason), `failed` (reason); and `store_refuses` (reason).
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from shared import logs
from shared.errors import Cancelled, LeaseLost, PipelineError, StopRequested, StorageError
from shared.leasing.lease import Lease

# Faults of the store or the machine, not of the work: another attempt may succeed. A MemoryError that reaches Celery
# would end the whole worker.
_PASSING: Final = (StorageError, OSError, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What is counted for a unit that is done: examples written and pairs quarantined."""

    written: int = 0
    quarantined: int = 0


@contextmanager
def store_may_refuse(logger: logging.Logger) -> Iterator[None]:
    """Log an error of the store as one line, for steps before a message's unit is claimed.

    The message is lost then; the reconciler notices that and sends it again.
    """
    try:
        yield
    except StorageError as error:
        logger.error("store_refuses", extra={"reason": str(error)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs units of one kind.

    `fail_for_good` is called with a `PipelineError`, which every further attempt would meet too; without it such an
    error is raised like any other.
    """

    kind: Literal["shard", "run"]
    logger: logging.Logger
    fail_for_good: Callable[[PipelineError], None] | None = None

    def _event(self, name: str) -> str:
        return f"{self.kind}_{name}"

    def run(self, lease: Lease, settled: str | None, work: Callable[[int], Done]) -> Done | None:
        """Claim a unit and work on it, unless there is nothing to do.

        Args:
            lease: The unit's lease, not claimed yet.
            settled: Why there is nothing to do, whatever Redis says; None if there is something to do.
            work: Does the unit's work; it takes the number of the attempt, from 1, and uses `lease` as its guard.

        Returns:
            What `work` returned; None if there was nothing to do, or the unit was given back or failed.

        Raises:
            BaseException: What `work` raised and is not handled here, after the lease was given back with its text.
        """
        outcome, attempt = (settled, 0) if settled else lease.claim()
        if outcome != "claimed":
            self.logger.info(self._event("not_claimed"), extra={"outcome": outcome})
            return None
        logs.bind(attempt=attempt)
        with lease.renewed():
            done = self._attempt(lease, attempt, work)
            if done is not None:
                lease.complete(written=done.written, quarantined=done.quarantined)
            return done

    def _attempt(self, lease: Lease, attempt: int, work: Callable[[int], Done]) -> Done | None:
        try:
            return work(attempt)
        except StopRequested:
            self.logger.info(self._event("given_back"))
            lease.release(counted=False)
        except (Cancelled, LeaseLost) as error:
            self.logger.warning(self._event("left"), extra={"reason": str(error)})
            lease.release(counted=False)
        except _PASSING as error:
            self.logger.error(self._event("failed"), extra={"reason": repr(error)})
            lease.release(counted=True, error=str(error) or type(error).__name__)
        except BaseException as error:  # also SystemExit: give the lease back first, then let the error reach Celery
            if self.fail_for_good is None or not isinstance(error, PipelineError):
                lease.release(counted=True, error=f"{type(error).__name__}: {error}")
                raise
            self.fail_for_good(error)
            lease.release(counted=True, error=str(error))
        return None
