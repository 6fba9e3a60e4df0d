"""Whether a store can commit: if several clients create one file at once, exactly one must be told that it did."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Final

from shared.storage import Storage

RACERS: Final = 8
# All run at once. A store that cannot commit lets nearly all racers win, in nearly every race.
RACES: Final = 3


def races_without_one_winner(storage: Storage) -> list[int]:
    """Race to create new files in the store, and remove them.

    Returns:
        For each race without exactly one winner, how many of the `RACERS` were told that they had created the file.

    Raises:
        StorageError: The store refuses.
    """
    start = Barrier(RACERS * RACES)

    def create(key: str, racer: int) -> bool:
        racing = Storage(storage.root)  # its own client, as another process has
        start.wait()
        return racing.create(key, str(racer).encode())

    with _files(storage) as keys, ThreadPoolExecutor(RACERS * RACES) as pool:
        told = {key: [pool.submit(create, key, racer) for racer in range(RACERS)] for key in keys}
        winners = [sum(each.result() for each in futures) for futures in told.values()]
    return [count for count in winners if count != 1]


@contextmanager
def _files(storage: Storage) -> Iterator[list[str]]:
    """Keys of files that nobody else uses; the files are removed at the end."""
    keys = [f"doctor-{uuid.uuid4().hex}.txt" for _ in range(RACES)]
    try:
        yield keys
    finally:
        for key in keys:
            storage.remove(key)
