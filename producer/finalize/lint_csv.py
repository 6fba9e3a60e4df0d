"""Findings -> `lint.csv`, one line each: file, object, rank, kind, found, done, class."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from shared.jobs.findings import Finding
from shared.text import printable

# `class` was added after 0.2.0, at the end, so that programs that read columns by position still work.
COLUMNS: Final = ("file", "object", "rank", "kind", "found", "done", "class")

# The `done` of quarantined files that were never in a pair: bad names, links that lead out, several of one stem.
OF_NO_PAIR: Final = frozenset({"refused", "left out"})

# Kinds that lint finds from `<size>`, without reading pictures; the workers find the same from the picture itself.
_BY_SIZE_ONLY: Final = frozenset({"box_beyond_size"})

# Kind of a finding by hashes -> the kind that already says it if the bytes are equal.
_SAME: Final = {"near_duplicate_across_splits": "duplicate_across_splits"}


def merged_findings(submitted: Iterable[Finding], received: Iterable[Finding]) -> Iterator[Finding]:
    """All findings of a job, none twice: those `submitted` by lint, then those `received` in receipts.

    The workers read each XML again, so their receipts repeat what lint found there: same file, object and kind. Only
    64-bit hashes of these are kept, so that millions of findings need little memory. If `submitted` says that two
    pictures are equal, a finding in `received` that they are nearly equal is left out.
    """
    seen: set[int] = set()
    for finding in submitted:
        if finding.kind not in _BY_SIZE_ONLY:
            seen.add(_key(finding))
            yield finding
    for finding in received:
        if _key(finding) not in seen:
            yield finding


def _key(finding: Finding) -> int:
    return hash((finding.file, finding.object_index, _SAME.get(finding.kind, finding.kind)))


def lint_rows(findings: Iterable[Finding]) -> Iterator[str]:
    """The lines of `lint.csv` (RFC 4180 quoting, a header first), one per finding, without their line ends."""
    yield ",".join(COLUMNS)
    for finding in findings:
        text, index = io.StringIO(), finding.object_index or ""
        cells = [finding.file, index, finding.rank, finding.kind, finding.found, finding.done, finding.class_name]
        csv.writer(text, lineterminator="\r\n").writerow([printable(str(cell)) for cell in cells])
        yield text.getvalue().removesuffix("\r\n")
