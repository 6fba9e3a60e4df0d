"""The files of a job and of its run -> what the report says about them: what was asked, what lint found."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from shared.audit.same_name import learned_photos
from shared.command import hint
from shared.errors import FormatError, PipelineError
from shared.jobs.identity import find_job, words_of
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths, name_of_weights
from shared.jobs.versioned import read_stored
from shared.specs.run import RunSpec
from shared.storage import Storage

# Worst first; the names are `shared.jobs.findings.Rank`.
_RANKS: Final = ("error", "quarantined", "dropped", "mended", "info")

# How many characters of a damaged file an error shows.
_SHOWN: Final = 40


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
    """What the store knows about a job; `job` is None if it is no longer there, `lint` if there is no lint report."""

    job: Job | None
    lint: Sequence[LintKind] | None

    @property
    def split_rule(self) -> str:
        """What assigned the photos to the splits: `seeded`, `lists` or `folders`; "" if the job does not say."""
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


def learned_before(storage: Storage, spec: RunSpec) -> set[str]:
    """The photos of a run's job that the run it continues was trained on; none if files are damaged."""
    with suppress(PipelineError, ValueError, KeyError, TypeError):
        job = find_job(storage, spec.job)
        if spec.start is not None and job is not None:
            return learned_photos(storage, name_of_weights(spec.start), (storage, job))
    return set()


def lint_kinds(findings: Iterable[dict[str, str]]) -> list[LintKind]:
    """Findings (rows of `lint.csv`) by kind, worst rank first, then most frequent first."""
    examples: dict[tuple[str, str, str], str] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in findings:
        key = (row["kind"], row["rank"], row["done"])
        place = f"{row['file']}, object {row['object']}" if row["object"] else row["file"]
        examples.setdefault(key, f"{place}: {row['found']}")
        counts[key] += 1
    kinds = [LintKind(*key, count, examples[key]) for key, count in counts.items()]
    return sorted(kinds, key=lambda found: (_RANKS.index(found.rank), -found.count, found.kind))


def read_summary(storage: Storage, run: str) -> dict[str, Any] | None:
    """What `run.json` of a run says, or None if there is none.

    Raises:
        FormatError: It is damaged: it, or its `training` or `seconds`, is not a JSON object.
    """
    key = RunPaths(run).run
    content = storage.read_or_none(key)
    if content is None:
        return None
    try:
        summary = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _damaged(storage, run, f"no JSON ({error})") from error
    if not isinstance(summary, dict):
        raise _damaged(storage, run, _excerpt(summary))
    for part in ("training", "seconds"):
        if not isinstance(summary.get(part) or {}, dict):
            raise _damaged(storage, run, f"{_excerpt(summary[part])} as its {part!r}")
    return summary


def _excerpt(value: Any) -> str:
    return json.dumps(value)[:_SHOWN]


def _damaged(storage: Storage, run: str, found: str) -> FormatError:
    again = hint("retry", *words_of(storage, run), store=storage)
    return FormatError(
        f"{storage.url(RunPaths(run).run)}: damaged: found {found}, expected a JSON object that sums up the run: "
        f"delete the file, and `{again}` makes it again"
    )
