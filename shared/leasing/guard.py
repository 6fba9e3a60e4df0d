"""What long work asks while it runs: may I go on, may I publish? Independent of Redis; `Lease` implements it."""

from typing import Protocol


class Guard(Protocol):
    """Used by `write_shard` and by a training run; the implementation owns a lease."""

    def advance(self, **progress: float | int | str) -> None:
        """Report that the work advanced (a picture, a training step, an export phase); `progress` is shown to people.

        Raises:
            StopRequested: The process was asked to stop.
            Cancelled: The job or run was cancelled.
            LeaseLost: Another process owns this work now.
        """

    def before_publish(self) -> None:
        """Return only if the work is still ours and still wanted; waits while Redis cannot be reached.

        Raises:
            Cancelled: The job or run was cancelled, or its job removed.
            LeaseLost: Another process owns this work now.
        """

    def require_wanted(self) -> None:
        """Check in storage alone that the job still exists, before a file is written between two publishes.

        Raises:
            Cancelled: The job was removed, or another one was submitted under its name.
        """


class Unguarded:
    """A guard for work that nobody else can own: a command line on one machine, a unit test."""

    def advance(self, **progress: float | int | str) -> None:
        """Never stops the work."""

    def before_publish(self) -> None:
        """Always allows publishing."""

    def require_wanted(self) -> None:
        """Always allows writing."""
