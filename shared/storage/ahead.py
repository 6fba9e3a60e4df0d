"""Many objects, fetched in parallel and handed out in order, with bounded memory."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from shared.errors import StorageError

Asked = TypeVar("Asked")
Found = TypeVar("Found")

# Called with the number of bytes about to arrive; waits for room, and raises `StorageError` if nobody needs them now.
Admit = Callable[[int], None]

# At 50 ms per request, 32 threads bring 640 objects a second, more than one core decodes.
THREADS: Final = 32
# The most bytes that are fetched but not used yet. The next object in order is admitted whatever its size.
MOST_BYTES: Final = 64 << 20

_WAITING_A_THREAD: Final = 8
_LOOK_EACH_S: Final = 1.0


class Ahead(Generic[Asked, Found]):
    """The results of `fetch` for each of `asked`, in order; a context manager, after which no new fetch begins.

    `fetch` runs in threads; it is given an `Admit`, which it must call before it takes bytes into memory. The bytes
    count until the next result after its own is taken.
    """

    def __init__(
        self,
        asked: Iterable[Asked],
        fetch: Callable[[Asked, Admit], Found],
        *,
        threads: int = THREADS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._asked, self._fetch = enumerate(asked), fetch
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")
        self._most_waiting, self._most_bytes = _WAITING_A_THREAD * threads, most_bytes
        self._waiting: deque[Future[Found]] = deque()
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}
        self._next = 0
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __iter__(self) -> Iterator[Found]:
        while self._begin_more():
            yield self.take()

    def take(self, look: Callable[[], None] = lambda: None) -> Found:
        """The next result, or what `fetch` raised; while waiting, `look` is called every second, and may raise.

        Raises:
            IndexError: There is no further result.
        """
        self._begin_more()
        future = self._waiting.popleft()
        with self._changed:
            self._held.pop(self._next - 1, None)
            self._changed.notify_all()
        while not (future.done() or wait([future], _LOOK_EACH_S).done):
            look()
        with self._changed:
            self._next += 1
            self._changed.notify_all()
        return future.result()

    def _begin_more(self) -> bool:
        """Begin further fetches once half of those ahead are used up; returns whether there is anything to take.

        So objects arrive in bursts, and not one by one in the middle of the decoder's work.
        """
        if len(self._waiting) > self._most_waiting // 2:
            return True
        while len(self._waiting) < self._most_waiting and (numbered := next(self._asked, None)) is not None:
            self._waiting.append(self._pool.submit(self._fetch_one, *numbered))
        return bool(self._waiting)

    def _fetch_one(self, number: int, asked: Asked) -> Found:
        return self._fetch(asked, lambda size_bytes: self._admit(number, size_bytes))

    def _admit(self, number: int, size_bytes: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room(number, size_bytes))
            if self._is_over:
                raise StorageError("nobody waits for it any more")
            self._held[number] = self._held.get(number, 0) + size_bytes

    def _has_room(self, number: int, size_bytes: int) -> bool:
        return number == self._next or sum(self._held.values()) + size_bytes <= self._most_bytes
