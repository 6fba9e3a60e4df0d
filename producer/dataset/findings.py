"""Many findings in little memory: as models, those of a million pictures without `<size>` would take 1 GB."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from shared.jobs.findings import Finding, Rank

# (file, object index or 0, kind, rank, found, done, class): in this order, so that rows sort as findings should.
Row = tuple[str, int, str, Rank, str, str, str]


class Findings:
    """A list of findings, kept as rows of 0.2 KB; a `Finding` is made when it is asked for."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self._rows: list[Row] = []
        self.extend(findings)

    def extend(self, findings: Iterable[Finding]) -> None:
        """Append findings."""
        if isinstance(findings, Findings):
            self._rows.extend(findings._rows)
            return
        for finding in findings:
            # Texts that repeat are kept only once.
            rank: Rank = sys.intern(finding.rank)  # type: ignore[assignment]  # intern returns its argument's value
            kind, done, name = sys.intern(finding.kind), sys.intern(finding.done), sys.intern(finding.class_name)
            self._rows.append((finding.file, finding.object_index or 0, kind, rank, finding.found, done, name))

    def append(self, finding: Finding) -> None:
        """Append one finding."""
        self.extend((finding,))

    def sort(self) -> None:
        """By file, object, kind."""
        self._rows.sort()

    def kinds(self) -> Counter[str]:
        """How many there are of each kind."""
        return Counter(row[2] for row in self._rows)

    def of_rank(self, rank: Rank) -> "Findings":
        """The findings of one rank, in order."""
        chosen = Findings()
        chosen._rows = [row for row in self._rows if row[3] == rank]
        return chosen

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Finding]:
        for file, index, kind, rank, found, done, name in self._rows:
            about = {"file": file, "object_index": index or None, "class_name": name}
            yield Finding(**about, rank=rank, kind=kind, found=found, done=done)
