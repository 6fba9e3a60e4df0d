"""What long work asks while it runs: may I go on, may I publish? Knows no Redis; a `Lease` is one answer."""

from typing import Protocol


class Guard(Protocol):
    """Held by `write_shard` and by a training run; the implementation owns a lease."""

    def advance(self, **progress: float | int | str) -> None:
        """Say that the work advanced (a picture, a training step, an export phase); `progress` is shown to people.

        Raises:
            StopRequested: The process was asked to stop.
            Cancelled: The job or run was cancelled.
            LeaseLost: Another process owns this work now.
        """

    def before_publish(self) -> None:
        """Return only if the work is still ours and wanted; waits while Redis cannot be reached.

        Raises:
            Cancelled: The job or run was cancelled, or its job removed.
            LeaseLost: Another process owns this work now.
        """

    def require_wanted(self) -> None:
        """Ask storage alone whether the job is still there, before a file is written between two publishes.

        Raises:
            Cancelled: It was removed, or another one was submitted under its name.
        """


class Unguarded:
    """A guard for work that nobody else can own: a command line on one machine, a unit test."""

    def advance(self, **progress: float | int | str) -> None:
        """Go on."""

    def before_publish(self) -> None:
        """Publish."""

    def require_wanted(self) -> None:
        """Write."""
