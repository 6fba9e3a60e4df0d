"""What long work asks while it runs: may I go on, may I publish? Free of Redis; the ledger's lease is one answer."""

from typing import Protocol


class Guard(Protocol):
    """Held by `write_shard` and by a training run; the implementation owns a lease."""

    def advance(self, **progress: float | int | str) -> None:
        """Tell that work advanced (a picture, a training step, an export phase); `progress` is shown to people.

        Raises:
            StopRequested: The process was asked to stop.
            Cancelled: The job or run was cancelled.
            LeaseLost: Another process owns this work now.
        """

    def before_publish(self) -> None:
        """Return only while the work is still ours; waits while Redis cannot be reached.

        Raises:
            Cancelled: The job or run was cancelled.
            LeaseLost: Another process owns this work now.
        """


class Unguarded:
    """A guard for work that nobody else can own: a command line on one machine, a unit test."""

    def advance(self, **progress: float | int | str) -> None:
        """Go on."""

    def before_publish(self) -> None:
        """Publish."""
