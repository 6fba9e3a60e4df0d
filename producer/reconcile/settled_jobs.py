"""Storage -> the jobs that a listing has to look at: all but those that are over and whose folders are unchanged.

Writing, replacing or removing a file changes the mark of its folder. In a large store the marks are asked in turn, all
of them within `LISTINGS` listings. Some damage does not change the mark, such as a file that was cut short in place. It
is found when the job's turn comes: each listing looks at the `IN_TURN` jobs that were not looked at for longest.
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

# In a small store this covers all jobs. With 500 jobs, each has its turn once in 100 listings.
IN_TURN: Final = 5
# With up to `LEAST_MARKS` jobs, all marks are asked at each listing; with more, each at least once in `LISTINGS`.
LEAST_MARKS: Final = 50
LISTINGS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The mark of a folder just before a look at it; `is_certain` if it was the same before the previous look.

    File times advance in ticks of some ms, so a write in the same tick as the look leaves the mark as it was seen. The
    second look finds such a write.
    """

    mark: FolderMark
    is_certain: bool


def _seen_again(before: _Seen | None, mark: FolderMark) -> _Seen:
    """What to note after one more look at a folder that had this `mark` just before it."""
    return _Seen(mark=mark, is_certain=before is not None and before.mark == mark)


def _holds(seen: _Seen | None, mark: FolderMark | None) -> bool:
    """Whether a folder with this `mark` is certainly unchanged since it was seen."""
    return seen is not None and seen.is_certain and seen.mark == mark


class SettledJobs:
    """What is known of the jobs that are over; it is forgotten when changes may have been missed in Redis too."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._marks: dict[str, FolderMark | None] = {}  # as last read
        self._seen: dict[str, _Seen] = {}  # ordered: looked at longest ago first
        self._asked_up_to = ""

    def forget(self) -> None:
        """Have the next listing look at all jobs."""
        self._seen.clear()

    def list_due(self) -> set[str]:
        """List the store; return the names of the jobs to be looked at."""
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
        """Those of the sorted `names` whose turn it is to have their marks asked at this listing."""
        count = max(LEAST_MARKS, -(-len(names) // LISTINGS))
        start = bisect_right(names, self._asked_up_to)
        found = (names[start:] + names[:start])[:count]
        self._asked_up_to = found[-1] if found else ""
        return found

    def note_look(self, name: str, *, is_over: bool) -> None:
        """Note that the job `name` was looked at after the last listing; `is_over`: it and all its runs have ended."""
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
        """The names of the jobs with a run that has changed, up to the last update; each is returned once."""
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
        """The requests by job, as of the last update."""
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
