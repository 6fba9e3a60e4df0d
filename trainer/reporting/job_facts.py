"""A job's own files -> what its report says of it: what was asked, what lint found, how training went."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.jobs.versioned import read_stored
from shared.storage import Storage
from shared.text import counted

# Worst first; the names are `shared.jobs.findings.Rank`.
_RANKS: Final = ("error", "quarantined", "dropped", "mended", "info")


@dataclass(frozen=True, slots=True)
class LintKind:
    """Findings of one kind: what was done about them, how many there are, and one of them."""

    kind: str
    rank: str
    done: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the store knows of a job; `job` is None where it does not hold it any more, `lint` where there is none."""

    job: Job | None
    lint: Sequence[LintKind] | None

    @property
    def split_rule(self) -> str:
        """What dealt the photos to the splits: `seeded`, `lists` or `folders`; empty where the job does not say."""
        counts = {} if self.job is None else self.job.counts
        return next((rule for rule in ("seeded", "lists", "folders") if f"split_by_{rule}" in counts), "")


def read_job_facts(storage: Storage, job: str) -> JobFacts:
    """Read `job.json` and `lint.csv` of a job."""
    paths = JobPaths(job)
    asked, lint = storage.read_or_none(paths.job), storage.read_or_none(paths.lint)
    return JobFacts(
        job=None if asked is None else read_stored(Job, asked, storage.url(paths.job)),
        lint=None if lint is None else lint_kinds(csv.DictReader(io.StringIO(lint.decode()))),
    )


def lint_kinds(findings: Iterable[dict[str, str]]) -> list[LintKind]:
    """Findings (rows of `lint.csv`) by kind, worst rank first, then by number."""
    examples: dict[tuple[str, str, str], str] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in findings:
        key = (row["kind"], row["rank"], row["done"])
        place = f"{row['file']}, object {row['object']}" if row["object"] else row["file"]
        examples.setdefault(key, f"{place}: {row['found']}")
        counts[key] += 1
    kinds = [LintKind(*key, count, examples[key]) for key, count in counts.items()]
    return sorted(kinds, key=lambda found: (_RANKS.index(found.rank), -found.count, found.kind))


def read_history(storage: Storage, run: str) -> list[dict[str, float]]:
    """`results.csv` of a run, one row for each epoch without what was not measured; empty where there is none."""
    text = storage.read_or_none(f"{RunPaths(run).root}/results.csv")
    rows = csv.DictReader(io.StringIO("" if text is None else text.decode()))
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


def exported_epoch(history: Sequence[Mapping[str, float | None]], best_epoch: int, objects: int | None) -> str:
    """`epoch 31 of 54 was exported: the best of 25 validations on 4 objects`; "" where it is the last validation.

    Args:
        history: Of `read_history`.
        best_epoch: Whose weights are exported; 0 where none was validated.
        objects: On which validations were made; None where nobody knows.
    """
    validated = [row["epoch"] for row in history if row.get("val_map") is not None]
    if best_epoch == 0 or not validated or validated[-1] == best_epoch:
        return ""
    on = "" if objects is None else f" on {counted(objects, 'object')}"
    best = f"the best of {counted(len(validated), 'validation')}{on}"
    return f"epoch {best_epoch} of {history[-1]['epoch']:.0f} was exported: {best}"
