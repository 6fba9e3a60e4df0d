"""A job's own files → what its report says of it: what was asked, what lint found, how training went."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shared.job import Job
from shared.manifest import JobPaths, RunPaths
from shared.storage import Storage
from shared.stored import read_stored

# Worst first; the names are `shared.manifest.Rank`.
_RANKS: Final = ("error", "quarantined", "dropped", "mended", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintKind:
    """Findings of one kind: what was done about them, how many there are, and one of them."""

    kind: str
    rank: str
    done: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the store knows of a job; `job` is None where it does not hold it any more, `lint` where there is none."""

    job: Job | None
    lint: Sequence[LintKind] | None


def read_asked(storage: Storage, job: str) -> Asked:
    """Read `job.json` and `lint.csv` of a job."""
    paths = JobPaths(job)
    asked, lint = storage.read_or_none(paths.job), storage.read_or_none(paths.lint)
    return Asked(
        job=None if asked is None else read_stored(Job, asked, storage.url(paths.job)),
        lint=None if lint is None else lint_kinds(csv.DictReader(io.StringIO(lint.decode()))),
    )


def lint_kinds(findings: Iterable[dict[str, str]]) -> list[LintKind]:
    """Findings (rows of `lint.csv`) by kind, worst rank first, then by number."""
    first: dict[tuple[str, str, str], str] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for row in findings:
        key = (row["kind"], row["rank"], row["done"])
        place = f"{row['file']}, object {row['object']}" if row["object"] else row["file"]
        first.setdefault(key, f"{place}: {row['found']}")
        counts[key] = counts.get(key, 0) + 1
    kinds = [LintKind(kind=key[0], rank=key[1], done=key[2], count=counts[key], example=first[key]) for key in first]
    return sorted(kinds, key=lambda found: (_RANKS.index(found.rank), -found.count, found.kind))


def read_history(storage: Storage, run: str) -> list[dict[str, float]]:
    """`results.csv` of a run, one row an epoch without what was not measured; empty where there is none."""
    text = storage.read_or_none(f"{RunPaths(run).root}/results.csv")
    rows = csv.DictReader(io.StringIO("" if text is None else text.decode()))
    return [{name: float(value) for name, value in row.items() if value} for row in rows]
