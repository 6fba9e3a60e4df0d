"""Findings → `lint.csv`, one line each: file, object, rank, kind, found, done."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Final

from shared.manifest import Finding

COLUMNS: Final = ("file", "object", "rank", "kind", "found", "done")

# Told from `<size>` before any picture was read; the workers decide the same by the picture itself.
_BY_SIZE_ONLY: Final = frozenset({"box_beyond_size"})


def superseded(finding: Finding) -> bool:
    """Whether the workers' own findings replace this one."""
    return finding.kind in _BY_SIZE_ONLY


def lint_rows(findings: Iterable[Finding]) -> Iterator[str]:
    """The lines of `lint.csv` (RFC 4180 quoting, a header first), without their line ends."""
    yield ",".join(COLUMNS)
    for finding in findings:
        text = io.StringIO()
        index = "" if finding.object_index is None else finding.object_index
        csv.writer(text, lineterminator="").writerow(
            [finding.file, index, finding.rank, finding.kind, finding.found, finding.done]
        )
        yield text.getvalue()
