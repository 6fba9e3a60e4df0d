"""Storage -> the jobs that a listing has to look at: not those that are over and whose folders nobody has changed.

What is written into a folder, replaced or removed there changes the folder's mark. Of a large store the marks are asked
in turn, all of them within `LISTINGS` listings. What a folder does not tell, a file that was cut short in its place, is
found when the job's turn comes: `IN_TURN` jobs a listing, those first that nobody has looked at for longest.
"""

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from producer.state.runs import Requests
from shared.errors import FormatError, StorageError
from shared.jobs.identity import read_request
from shared.specs.run import RunSpec
from shared.storage import FolderMark, Storage

# All of a small store are looked at. Of 500 jobs each is in 100 listings.
IN_TURN: Final = 5
# Of so few all marks are asked at each listing; of more, each at one of so many listings.
LEAST_MARKS: Final = 50
LISTINGS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The mark that a folder had before it was looked at, and whether it had it at the look before too.

    A clock of files has ticks of some ms: what is written in the tick of a look leaves the mark that was seen. The
    second look finds it.
    """

    mark: FolderMark
    is_certain: bool


def _seen_again(before: _Seen | None, mark: FolderMark) -> _Seen:
    """After one more look at a folder, which had this `mark` just before it."""
    return _Seen(mark=mark, is_certain=before is not None and before.mark == mark)


def _holds(seen: _Seen | None, mark: FolderMark | None) -> bool:
    """Whether a folder of this `mark` is certainly as it was seen."""
    return seen is not None and seen.is_certain and seen.mark == mark


class SettledJobs:
    """What is known of the jobs that are over; forgotten when changes may have been missed in Redis too."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._marks: dict[str, FolderMark | None] = {}  # as they were asked last
        self._seen: dict[str, _Seen] = {}  # those first that were looked at longest ago
        self._asked_up_to = ""

    def forget(self) -> None:
        """Have the next listing look at all jobs."""
        self._seen.clear()

    def list_due(self) -> set[str]:
        """List the store: the names of the jobs to be looked at."""
        names = self._storage.list_names("jobs")
        there = set(names)
        settled = {name for name, seen in self._seen.items() if seen.is_certain}
        unsettled = [name for name in names if name not in settled]
        in_turn = list(islice((name for name in self._seen if name in there), IN_TURN))
        asked = {*unsettled, *in_turn, *self._marks_in_turn(names)}
        marks = self._storage.marks_of("jobs", asked, "shards")
        self._marks = {name: mark for name, mark in self._marks.items() if name in there} | marks
        changed = {name for name in asked if not _holds(self._seen.get(name), self._marks[name])}
        return changed | (self._seen.keys() - there) | set(in_turn)

    def _marks_in_turn(self, names: list[str]) -> list[str]:
        """The names, of those that are sorted, whose marks are asked at this listing whatever is known of them."""
        count = max(LEAST_MARKS, -(-len(names) // LISTINGS))
        start = bisect_right(names, self._asked_up_to)
        found = (names[start:] + names[:start])[:count]
        self._asked_up_to = found[-1] if found else ""
        return found

    def note_look(self, name: str, *, is_over: bool) -> None:
        """Note that the job `name` was looked at after the last listing, and whether it is over with all its runs."""
        mark, seen = self._marks.get(name), self._seen.pop(name, None)
        if is_over and mark is not None:
            self._seen[name] = _seen_again(seen, mark)


class StoredRequests:
    """What was asked of all runs of the store; a request is read again when the folder of its run has changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: dict[str, _Seen] = {}
        self._asked: dict[str, RunSpec] = {}
        self._by_job: Requests = {}
        self._changed_jobs: set[str] = set()

    def take_changed_jobs(self) -> set[str]:
        """The names of the jobs of which a run has changed, up to the last update; each is told once."""
        jobs, self._changed_jobs = self._changed_jobs, set()
        return jobs

    def update(self) -> None:
        """Read what has changed since the last update."""
        marks = self._storage.marks_of("runs", self._storage.list_names("runs"))
        changed = [name for name, mark in marks.items() if not _holds(self._seen.get(name), mark)]
        gone = self._seen.keys() - marks.keys()
        self._changed_jobs |= self._jobs_of((*changed, *gone))
        for name in gone:
            del self._seen[name]
            self._asked.pop(name, None)
        for name in changed:
            self._read(name, marks[name])
        if changed or gone:
            self._by_job = _by_job(self._asked)
        self._changed_jobs |= self._jobs_of(changed)

    def by_job(self) -> Requests:
        """What was asked, as it was at the last update."""
        return self._by_job

    def _read(self, name: str, mark: FolderMark | None) -> None:
        self._asked.pop(name, None)
        with suppress(FormatError, StorageError):
            asked = read_request(self._storage, name)
            if asked is not None:
                self._asked[name] = asked
            if mark is not None:
                self._seen[name] = _seen_again(self._seen.get(name), mark)

    def _jobs_of(self, runs: Iterable[str]) -> set[str]:
        return {self._asked[name].job for name in runs if name in self._asked}


def _by_job(asked: dict[str, RunSpec]) -> Requests:
    found: dict[tuple[str, str], list[RunSpec]] = {}
    for _, one in sorted(asked.items()):
        found.setdefault((one.job, one.incarnation), []).append(one)
    return found
