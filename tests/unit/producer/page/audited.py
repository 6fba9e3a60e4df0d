"""A store with a finished audit, as the page meets it: hostile names, a turned photo, one that is gone."""

import hashlib
from pathlib import Path

import cv2
import numpy as np

from shared.audit.findings import AuditFinding, AuditFindings
from shared.jobs.identity import make_note
from shared.jobs.job import Job, PathPair, ShardTask, SplitPlan
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage

RUN, JOB, IDENTITY = "job.audit-3", "job", "ab" * 16
COUNT = 12
SCRIPT = "<script>document.title = 'hostile'</script>"
GONE = "photos/gone.jpg"
# Orientation 6: to be turned clockwise (Exif 2.32, tag 274).
TURNED = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00" + b"\0" * 4


XML = (
    "<annotation><size><width>240</width><height>320</height><depth>3</depth></size><object><name>dog</name><bndbox>"
    "<xmin>100</xmin><ymin>60</ymin><xmax>160</xmax><ymax>120</ymax></bndbox></object></annotation>"
)


def turned(content: bytes) -> bytes:
    """A JPEG that says of itself that it lies on its left side."""
    return content[:2] + b"\xff\xe1" + (len(TURNED) + 2).to_bytes(2, "big") + TURNED + content[2:]


def finding(number: int) -> AuditFinding:
    """A finding of each kind that has a place, in one of two photos; the last one's photo is gone."""
    is_moved = number % 2 == 1
    return AuditFinding(
        id=f"{number:010x}",
        kind="misplaced" if is_moved else "made_up",
        file=GONE if number == COUNT - 1 else f"photos/<b>{number % 2}.jpg",
        object=1,
        score=0.9 - number / 100,
        class_name="dog" if is_moved else SCRIPT,
        box=(100.0, 60.0, 160.0, 120.0),
        proposed_class="cat" if is_moved else "",
        proposed_box=(110.0, 60.0, 170.0, 120.0) if is_moved else None,
        reason=f"nothing there {SCRIPT}",
    )


IDS = [finding(number).id for number in range(COUNT)]


def make_audited(folder: Path) -> Path:
    """Write photos and store below a folder; the store's path. The first photo is red at its upper left, upright."""
    photos = folder / "data" / "voc" / "photos"
    photos.mkdir(parents=True)
    upright = np.full((320, 240, 3), 200, np.uint8)
    upright[:100, :100] = (0, 0, 220)
    lying = cv2.rotate(upright, cv2.ROTATE_90_COUNTERCLOCKWISE)
    (photos / "<b>0.jpg").write_bytes(turned(cv2.imencode(".jpg", lying)[1].tobytes()))
    (photos / "<b>1.jpg").write_bytes(cv2.imencode(".jpg", upright)[1].tobytes())
    (photos / "<b>1.xml").write_text(XML)
    store = Storage(str(folder / "store"))
    store.make_root()
    pairs = tuple(
        PathPair(image=f"photos/<b>{at}.jpg", annotation=xml, source_id=at + 1, fingerprint="0" * 16)
        for at, xml in enumerate((None, "photos/<b>1.xml"))
    )
    plan = ShardTask(job=JOB, incarnation=IDENTITY, split="train", index=0, count=1, pairs=pairs).to_json()
    digest = hashlib.sha256(plan.encode()).hexdigest()
    store.write_lines(JobPaths(JOB).plan(IDENTITY), [plan])
    job = Job(
        job=JOB,
        incarnation=IDENTITY,
        dataset=str(photos.parent),
        folder="voc",
        spec=JobSpec(background="orphans"),
        run=None,
        labels=("cat",),
        splits={"train": SplitPlan(pairs=2, digests=(digest,))},
        request_digest="0" * 64,
    )
    store.write(JobPaths(JOB).job, job.to_json().encode())
    asked = RunSpec(job=JOB, incarnation=IDENTITY, run=RUN, folds=3, audits=("job.fold-1-of-3",))
    store.write(RunPaths(RUN).request, asked.to_json().encode())
    store.write(RunPaths(RUN).run, make_note(IDENTITY))
    rows = tuple(finding(number) for number in range(COUNT))
    found = AuditFindings(run=RUN, job=JOB, incarnation=IDENTITY, folds=3, photos=2, boxes=9, findings=rows)
    store.write(RunPaths(RUN).findings, found.to_json().encode())
    return folder / "store"
