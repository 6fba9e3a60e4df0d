"""Findings → `lint.csv`, one line each: file, object, rank, kind, found, done."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from shared.manifest import Finding

COLUMNS: Final = ("file", "object", "rank", "kind", "found", "done")

# Told from `<size>` before any picture was read; the workers decide the same by the picture itself.
_BY_SIZE_ONLY: Final = frozenset({"box_beyond_size"})


def merged_findings(submitted: Iterable[Finding], received: Iterable[Finding]) -> Iterator[Finding]:
    """All findings of a job, none twice.

    The workers read each XML again, so their receipts repeat what the submit found there: same file, object and kind.
    Only 64-bit hashes of these are kept, so that memory stays small beside millions of findings.

    Args:
        submitted: Of the submit's lint.
        received: Of the receipts.
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
    return hash((finding.file, finding.object_index, finding.kind))


def lint_rows(findings: Iterable[Finding]) -> Iterator[str]:
    """The lines of `lint.csv` (RFC 4180 quoting, a header first), without their line ends."""
    yield ",".join(COLUMNS)
    for finding in findings:
        text = io.StringIO()
        index = "" if finding.object_index is None else finding.object_index
        csv.writer(text, lineterminator="\r\n").writerow(
            [finding.file, index, finding.rank, finding.kind, finding.found, finding.done]
        )
        yield text.getvalue().removesuffix("\r\n")
