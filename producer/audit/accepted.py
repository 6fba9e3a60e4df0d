"""`--accept LIST` -> the findings of an audit that a person accepts; also reads an audit's findings from the store."""

import csv
import io
import shlex
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Final

from producer.state.runs import runs_of
from shared.audit.findings import AuditFinding, AuditFindings, number_of, whole_id
from shared.command import hint
from shared.errors import OptionError, PlanError
from shared.jobs.identity import read_note, read_request
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.jobs.versioned import read_stored
from shared.storage import Storage
from shared.text import counted

# What a person may write into a row to accept it, or not.
_YES: Final = frozenset({"yes", "y", "true", "x", "1"})
_NO: Final = frozenset({"", "no", "n", "false", "0", "-"})
# How many unknown ids are named; the others are counted.
_NAMED = 10


def read_findings(storage: Storage, job: Job, run: str) -> AuditFindings:
    """What the audit `run` of a job has found.

    Raises:
        PlanError: The audit is not done, its file is gone, there is no such run, or the run is not an audit.
        FormatError: Its file is damaged, or of another version.
    """
    asked = read_request(storage, run)
    if asked is None or asked.incarnation != job.incarnation:
        raise PlanError(_no_audit(storage, job, run))
    if not asked.audits:
        raise PlanError(f"run {run} of job {job.job!r} is no audit, and has no findings of one")
    if read_note(storage, RunPaths(run).run, job.incarnation) is None:
        raise PlanError(f"audit {run} is not done: `status {job.job} --run {run}` says where it stands")
    key = RunPaths(run).findings
    text = storage.read_or_none(key)
    if text is None:
        again = hint("retry", job.job, "--run", run, store=storage)
        raise PlanError(f"audit {run} is done, but {storage.url(key)} is missing: `{again}` makes it again")
    return read_stored(AuditFindings, text, storage.url(key))


def _no_audit(storage: Storage, job: Job, run: str) -> str:
    """The message if a job has no audit `run`; it lists the audits that there are, as one of them may be meant."""
    others = [each.run for each in runs_of(storage, job) if each.audits]
    if others:
        known = ", ".join(f"{each} ({shlex.join(_asked_by(each))})" for each in others)
        return f"job {job.job!r} has no audit {run} (there are: {known})"
    return f"job {job.job!r} has no audit {run}: `{hint('audit', job.job, *_asked_by(run), store=storage)}` makes one"


def _asked_by(run: str) -> list[str]:
    """The option that selects the audit `run` of a job, from the end of its name (`audit_name`)."""
    which = run.rpartition("-")[2]
    return ["--quick"] if which == "quick" else ["--folds", which]


def accepted(text: str, found: AuditFindings) -> tuple[list[AuditFinding], list[str]]:
    """The findings that `--accept` names, surest first, and a line on each id that this audit does not know.

    `text` is a score from which on all are accepted, or a CSV file with a column `id`, such as `audit.csv`. If that has
    a column `accept` too, only its rows with `yes` count.

    Raises:
        OptionError: `text` is neither, or accepts no finding.
    """
    score = as_number(text)
    if score is None:
        return _listed(Path(text), found)
    if not 0 <= score <= 1:
        raise OptionError(f"--accept {text}: expected a score from 0 to 1, or a CSV file with a column id")
    chosen = [finding for finding in found.findings if finding.score >= score]
    if not chosen:
        best = max((finding.score for finding in found.findings), default=0.0)
        raise OptionError(f"--accept {text}: no finding has such a score; the surest has {best:.2f}")
    return chosen, []


def without_kept(text: str, chosen: Sequence[AuditFinding], kept: Container[str]) -> tuple[list[AuditFinding], str]:
    """The findings that the score `text` accepts and whose label nobody has kept, and a line on the others or "".

    Raises:
        OptionError: No finding is left.
    """
    left = [finding for finding in chosen if finding.id not in kept]
    count = len(chosen) - len(left)
    if not left:
        raise OptionError(f"--accept {text}: {_of_score(count)} answered with no on the page, so the labels stay")
    return left, f"{_of_score(count)} answered with no on the page: left out" if count else ""


def _of_score(count: int) -> str:
    return f"{counted(count, 'finding')} of such a score {'was' if count == 1 else 'were'}"


def _listed(file: Path, found: AuditFindings) -> tuple[list[AuditFinding], list[str]]:
    if file.is_dir() or not file.exists():
        met = "a folder" if file.is_dir() else "no such file"
        raise OptionError(f"--accept {file}: expected a score from 0 to 1, or a CSV file with a column id; found {met}")
    known: Mapping[str, AuditFinding] = {finding.id: finding for finding in found.findings}
    ids = list(dict.fromkeys(_meant(each, known) for each in _ids(file)))
    if not ids:
        raise OptionError(
            f"--accept {file}: no row has yes in the column accept: write it where a finding is right, or give a score "
            "instead of the file, such as --accept 0.9, which accepts all from that score on"
        )
    unknown = [each for each in ids if each not in known]
    lines = [f"{file}: {each!r} is no finding of {found.run}: left out" for each in unknown[:_NAMED]]
    if unknown[_NAMED:]:
        more = len(unknown) - _NAMED
        ending = "id is no finding" if more == 1 else "ids are no findings"
        lines.append(f"{file}: {more} more {ending} of {found.run}: left out")
    chosen = [finding for finding in found.findings if finding.id in set(ids)]
    if not chosen:
        raise OptionError("\n".join([*lines, f"--accept {file}: names no finding of {found.run}"]))
    return chosen, lines


def _ids(file: Path) -> list[str]:
    """The ids of a CSV's accepted rows as written there; semicolons, which some spreadsheets write, work too."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"--accept {file}: expected a CSV in UTF-8") from error
    head = text.partition("\n")[0]
    delimiter = ";" if ";" in head and "," not in head else ","
    rows = csv.DictReader(io.StringIO(text), delimiter=delimiter, strict=True)
    chosen, read = [], 0
    try:
        # Case and spaces are ignored: otherwise a column `Accept` would be missed, and its rows with `no` accepted too.
        rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or ()]
        if "id" not in rows.fieldnames:
            raise OptionError(f"--accept {file}: no column id in its first line ({head[:80]!r})")
        for row in rows:
            if row["id"] and _is_accepted(row):
                chosen.append(row["id"].strip())
            read = rows.line_num
    except csv.Error as error:  # such as an unmatched quotation mark, after which all is read as one field
        raise OptionError(f"--accept {file}: no CSV from line {read + 1} on: {error}") from error
    return chosen


def _meant(text: str, known: Collection[str]) -> str:
    """The id that `text` is; if a spreadsheet made it a number, perhaps rounded (1.23E+08), the id that fits it."""
    whole, number = whole_id(text), as_number(text)
    if whole in known or number is None:
        return whole
    mantissa, _, exponent = text.upper().partition("E")
    form = f".{len(mantissa.partition('.')[2])}E" if exponent else ""
    of_ids = {each: value for each in known if (value := number_of(each)) is not None}
    meant = [each for each, value in of_ids.items() if format(value, form) == format(number, form)]
    return meant[0] if len(meant) == 1 else whole


def as_number(text: str) -> float | None:
    """The number that a text is, such as the score given to `--accept`; None if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return None


def _is_accepted(row: Mapping[str, str | None]) -> bool:
    if "accept" not in row:
        return True
    word = (row["accept"] or "").strip().lower()
    if word not in _YES | _NO:
        raise OptionError(
            f"--accept: row {row['id']} has {row['accept']!r} in the column accept: expected yes or nothing"
        )
    return word in _YES
