"""How the long steps of the producer say how far they are."""

from collections.abc import Callable

# Called with the name of the stage, how many are done, and of how many (0: not known yet).
Progress = Callable[[str, int, int], None]


def no_progress(_stage: str, _done: int, _total: int) -> None:
    """Report no progress: for callers that do not show it."""
