"""A finished audit -> a copy of its files for a person, and the text about it."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from producer.audit.cost import USUAL_FOLDS
from producer.photos.unfinished import unfinished_folder
from shared.audit.findings import LIKELY, AuditFindings, whole_id
from shared.command import hint, shown
from shared.jobs.paths import RunPaths
from shared.storage import Storage
from shared.text import counted


def copy_results(storage: Storage, run: str, folder: Path) -> None:
    """Copy `audit.csv`, `audit.html` and `proposals/` of an audit into a new folder, whole or not at all."""
    paths = RunPaths(run)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(folder.parent, ".audit-") as place:
        made = place / "copy"
        keys = [paths.audit_table, paths.audit_page, *storage.walk(f"{paths.root}/proposals")]
        for key in keys:
            file = made / key.removeprefix(f"{paths.root}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(storage.read(key))
        with suppress(FileNotFoundError):
            folder.rmdir()
        made.rename(folder)


def is_copy(folder: Path, found: AuditFindings) -> bool:
    """Whether a folder has a table of exactly these findings, which somebody may have written into."""
    try:
        rows = list(csv.DictReader(io.StringIO((folder / "audit.csv").read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    return [whole_id(row.get("id") or "") for row in rows] == [finding.id for finding in found.findings]


def likely_text(found: AuditFindings) -> str:
    """`19 labels more likely wrong than right (12 made_up, 7 misplaced)`."""
    kinds = Counter(finding.kind for finding in found.findings if finding.score >= LIKELY)
    told = f" ({', '.join(f'{count} {kind}' for kind, count in kinds.most_common())})" if kinds else ""
    return f"{counted(kinds.total(), 'label')} more likely wrong than right{told}"


def results_text(storage: Storage, found: AuditFindings, folder: Path | None, kept: int = 0) -> Iterator[str]:
    """The results of an audit, line by line, and what to do next; `kept` doubts were answered with no in others."""
    boxes, photos = counted(found.boxes, "box", "boxes"), counted(found.photos, "photo")
    yield f"{found.job}: {likely_text(found)}, of {boxes} in {photos}"
    yield from (f"warning: {remark}" for remark in found.remarks)
    paths = RunPaths(found.run)
    place = shown(folder.absolute()) if folder is not None else storage.url(paths.root)
    yield f"look first: {place}/audit.html"
    doubts = counted(len(found.findings), "doubt")
    is_any = any(finding.score >= LIKELY for finding in found.findings)  # otherwise there is no folder `proposals`
    proposals = f"; the likely ones as XML for LabelImg and CVAT: {place}/proposals" if is_any else ""
    yield f"all {doubts}: {place}/audit.csv{proposals}"
    if kept:
        these, count = ("was", "counts it") if kept == 1 else ("were", "counts them")
        yield f"{counted(kept, 'doubt')} {these} answered with no in an earlier audit: the page {count} as decided"
    if found.findings:
        accept = hint(
            "audit", found.job, *quick_words(found), "--accept", f"{place}/audit.csv", "--out", "FOLDER", store=storage
        )
        yield f"`{accept}` writes a copy of the photos' folder, corrected by the rows with yes in the column accept"


def quick_words(found: AuditFindings) -> list[str]:
    """The options that select this audit of a job."""
    return ["--quick"] if not found.folds else fold_words(found.folds)


def fold_words(folds: int) -> list[str]:
    """The option that says how many folds an audit has; none if it has the usual number."""
    return [] if folds == USUAL_FOLDS else ["--folds", str(folds)]
