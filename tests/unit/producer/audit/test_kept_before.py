"""Labels that a person has kept in another audit: what is taken for the same label of the same photo."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from producer.audit.corrected_copy import write_corrected
from producer.audit.decisions import Answer, Decision, Decisions
from producer.audit.kept_before import Before, OtherAudits, kept_before, kept_labels
from producer.audit.photo_sizes import note_photo_sizes
from producer.finalize.dataset_files import dataset_files
from producer.jobs.submit import Request
from producer.progress import no_progress
from shared.audit.findings import AuditFinding, AuditFindings
from shared.jobs.identity import make_note, read_receipt
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.specs.data import JobSpec
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.producer.audit.test_corrected_copy import written
from tests.unit.producer.folders import CAT, lint_and_submit, voc_xml, write

SPEC = JobSpec(shard_images=4, image_size=64)
SIZE = (128, 96)
FILE = "photos/3.jpg"
MISSING = AuditFinding(
    id="00000000aa",
    kind="missing",
    file=FILE,
    object=None,
    score=0.9,
    class_name="",
    box=None,
    proposed_class="dog",
    proposed_box=(60, 20, 100, 60),
    reason="nothing is marked here",
)
WRONG_CLASS = MISSING.model_copy(
    update={
        "id": "00000000bb",
        "kind": "wrong_class",
        "object": 1,
        "class_name": "cat",
        "box": (10.0, 10.0, 50.0, 50.0),
        "proposed_box": (10.0, 10.0, 50.0, 50.0),
    }
)
MISPLACED = WRONG_CLASS.model_copy(update={"id": "00000000cc", "kind": "misplaced", "proposed_class": "cat"})


class Counted(Storage):
    """A store that knows what was read of it."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.keys_read = list[str]()

    def read(self, key: str) -> bytes:
        self.keys_read.append(key)
        return super().read(key)

    def read_or_none(self, key: str) -> bytes | None:
        self.keys_read.append(key)
        return super().read_or_none(key)


def pattern(seed: int, quality: int = 90, size: tuple[int, int] = SIZE) -> bytes:
    """A photo of its own as JPEG."""
    coarse = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), np.uint8)
    pixels = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def make_photos(folder: Path) -> Path:
    for number in range(6):
        write(folder, f"photos/{number}.jpg", pattern(number))
        write(folder, f"photos/{number}.xml", voc_xml([CAT], size=SIZE))
    return folder


def job_of(folder: Path, name: str, storage: Storage, spec: JobSpec = SPEC) -> Job:
    """A job whose shards are written and whose photos an audit has looked at."""
    job = lint_and_submit(
        Request(dataset=folder, name=name, spec=spec, run=None), storage=storage, data_root=folder
    ).job
    written(folder, job, storage)
    note_photo_sizes(job, folder, storage, no_progress)
    return job


def audit_of(job: Job, run: str, storage: Storage, *findings: AuditFinding) -> AuditFindings:
    asked = RunSpec(job=job.job, incarnation=job.incarnation, run=run, folds=3, audits=(f"{job.job}.fold-1-of-3",))
    storage.write(RunPaths(run).request, asked.to_json().encode())
    storage.write(RunPaths(run).run, make_note(job.incarnation))
    found = AuditFindings(
        run=run, job=job.job, incarnation=job.incarnation, folds=3, photos=6, boxes=6, findings=findings
    )
    storage.write(RunPaths(run).findings, found.to_json().encode())
    return found


def decide(storage: Storage, run: str, finding: AuditFinding, answer: Answer, at: float = 1.0) -> None:
    Decisions(storage, run).add(Decision(finding=finding.id, answer=answer, at=at))


def changed(finding: AuditFinding, **update: Any) -> AuditFinding:
    """The finding as another training says it: with another id."""
    return finding.model_copy(update={"id": "00000000dd", "score": 0.6, **update})


def kept(storage: Storage, job: Job, found: AuditFindings) -> dict[str, Before]:
    return dict(kept_before(storage, job, found, OtherAudits(storage).besides(found.run)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_photos(tmp_path / "voc")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "store"))


@pytest.fixture
def job(folder: Path, storage: Storage) -> Job:
    return job_of(folder, "job", storage)


@pytest.mark.parametrize(
    ("before", "update", "is_kept"),
    [
        (MISSING, {"proposed_box": (60.0, 20.0, 100.0, 60.0)}, True),
        (MISSING, {"proposed_box": (70.0, 22.0, 104.0, 60.0)}, True),
        (MISSING, {"proposed_box": (80.0, 40.0, 120.0, 80.0)}, False),
        (MISSING, {"proposed_class": "cat"}, False),
        (MISSING, {"file": "photos/4.jpg"}, False),
        (WRONG_CLASS, {"box": (11.0, 9.0, 50.4, 50.0)}, True),
        (WRONG_CLASS, {"proposed_box": (14.0, 10.0, 58.0, 50.0)}, True),
        (WRONG_CLASS, {"box": (11.5, 10.0, 50.0, 50.0)}, False),
        (WRONG_CLASS, {"proposed_class": "horse"}, False),
        (WRONG_CLASS, {"class_name": "horse"}, False),
        (MISPLACED, {"proposed_box": (30.0, 30.0, 90.0, 90.0)}, True),
        (MISPLACED, {"proposed_class": "dog"}, True),
        (MISPLACED, {"proposed_box": None, "proposed_class": "", "kind": "made_up"}, False),
    ],
    ids=[
        *("the same box is missing", "nearly the same box is missing", "another box is missing"),
        *("another class is missing", "in another photo", "rounded otherwise", "called otherwise and moved"),
        *("another box is marked", "another class is proposed", "another class is marked"),
        *("moved elsewhere", "moved and called otherwise", "another kind of doubt"),
    ],
)
def test_a_label_is_known_by_what_was_asked_about_it(
    storage: Storage, job: Job, before: AuditFinding, update: dict[str, Any], is_kept: bool
) -> None:
    audit_of(job, "job.audit-3", storage, before)
    decide(storage, "job.audit-3", before, "wrong")
    now = audit_of(job, "job.audit-quick", storage, changed(before, **update))
    expected = {"00000000dd": Before(run="job.audit-3", finding=before.id)} if is_kept else {}
    assert kept(storage, job, now) == expected


def test_a_label_is_kept_in_the_corrected_copy_whose_other_labels_were_changed(
    folder: Path, storage: Storage, job: Job, tmp_path: Path
) -> None:
    removed = WRONG_CLASS.model_copy(update={"kind": "made_up", "proposed_class": "", "proposed_box": None})
    audit_of(job, "job.audit-3", storage, MISSING, removed)
    decide(storage, "job.audit-3", MISSING, "wrong")
    copy = tmp_path / "copy"
    (line,) = write_corrected(job, storage, folder, [removed], copy)
    assert ": removed " in line
    again = job_of(copy, "again", storage, SPEC.model_copy(update={"background": "orphans", "image_size": 96}))
    now = audit_of(again, "again.audit-3", storage, changed(MISSING))
    assert kept(storage, again, now) == {"00000000dd": Before(run="job.audit-3", finding=MISSING.id)}


@pytest.mark.parametrize(
    ("photo", "is_kept"),
    [
        (pattern(3, quality=60), True),
        (pattern(77), False),
        (cv2.imencode(".jpg", np.full((96, 128, 3), 90, np.uint8))[1].tobytes(), False),
        (pattern(3, size=(256, 192)), False),
    ],
    ids=["recompressed", "another photo", "one that shows nothing", "of another size"],
)
def test_of_another_photo_under_the_same_path_the_label_is_doubted_anew(
    storage: Storage, job: Job, tmp_path: Path, photo: bytes, is_kept: bool
) -> None:
    audit_of(job, "job.audit-3", storage, MISSING)
    decide(storage, "job.audit-3", MISSING, "wrong")
    other = make_photos(tmp_path / "other")
    write(other, FILE, photo)
    again = job_of(other, "again", storage)
    now = audit_of(again, "again.audit-3", storage, changed(MISSING))
    assert bool(kept(storage, again, now)) == is_kept


def test_where_receipts_have_no_hash_path_and_size_tell_a_photo(storage: Storage, job: Job, tmp_path: Path) -> None:
    audit_of(job, "job.audit-3", storage, MISSING)
    decide(storage, "job.audit-3", MISSING, "wrong")
    other = make_photos(tmp_path / "other")
    write(other, FILE, pattern(77))
    again = job_of(other, "again", storage)
    now = audit_of(again, "again.audit-3", storage, changed(MISSING))
    assert not kept(storage, again, now)
    for shard in job.shards:
        key = JobPaths(job.job).receipt(shard)
        receipt = json.loads(storage.read(key))
        del receipt["hashes"]  # as 0.1.0 wrote it
        storage.write(key, json.dumps(receipt).encode())
    assert kept(storage, again, now)
    storage.write(JobPaths(job.job).photo_sizes(job.incarnation), b"{}")
    assert not kept(storage, again, now), "nothing but the path is known"


def test_the_newest_answer_about_a_label_counts_wherever_it_was_given(storage: Storage, job: Job) -> None:
    audit_of(job, "job.audit-2", storage, changed(MISSING, id="00000000ee"))
    audit_of(job, "job.audit-3", storage, MISSING)
    now = audit_of(job, "job.audit-4", storage, changed(MISSING))
    decide(storage, "job.audit-3", MISSING, "wrong", at=2.0)
    decide(storage, "job.audit-2", changed(MISSING, id="00000000ee"), "right", at=1.0)
    assert kept(storage, job, now) == {"00000000dd": Before(run="job.audit-3", finding=MISSING.id)}
    decide(storage, "job.audit-2", changed(MISSING, id="00000000ee"), "skip", at=3.0)
    assert kept(storage, job, now), "who skips says nothing"
    decide(storage, "job.audit-2", changed(MISSING, id="00000000ee"), "right", at=4.0)
    assert kept(storage, job, now) == {}
    decide(storage, "job.audit-2", changed(MISSING, id="00000000ee"), "wrong", at=5.0)
    assert kept(storage, job, now) == {"00000000dd": Before(run="job.audit-2", finding="00000000ee")}


def test_a_label_that_was_made_open_again_in_the_other_audit_is_doubted_anew(storage: Storage, job: Job) -> None:
    audit_of(job, "job.audit-3", storage, MISSING)
    now = audit_of(job, "job.audit-4", storage, changed(MISSING))
    decide(storage, "job.audit-3", MISSING, "wrong")
    assert kept(storage, job, now)
    decide(storage, "job.audit-3", MISSING, "open")
    assert kept(storage, job, now) == {}


def test_findings_of_the_other_audit_that_were_made_anew_are_read_anew(storage: Storage, job: Job) -> None:
    audit_of(job, "job.audit-3", storage, MISSING)
    now = audit_of(job, "job.audit-4", storage, changed(MISSING))
    decide(storage, "job.audit-3", MISSING, "wrong")
    others = OtherAudits(storage)
    assert kept_before(storage, job, now, others.besides(now.run))
    audit_of(job, "job.audit-3", storage, WRONG_CLASS)
    assert others.besides(now.run)[0].answered == ()


DAMAGE = {
    "findings": (RunPaths("stranger.audit-3").findings, b"{"),
    "a decision": (f"{RunPaths('stranger.audit-3').decisions}/000002.json", b"{"),
    "the job": (JobPaths("stranger").job, b"{"),
    "sizes": (None, b"[1, 2]"),
    "the plan": ("plan", b"{}\n{}\n"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_audit_of_another_job_says_nothing_and_the_others_still_do(
    storage: Storage, job: Job, tmp_path: Path, what: str
) -> None:
    stranger = job_of(make_photos(tmp_path / "other"), "stranger", storage)
    for each, run, at in ((job, "job.audit-3", 1.0), (stranger, "stranger.audit-3", 2.0)):
        audit_of(each, run, storage, MISSING)
        decide(storage, run, MISSING, "wrong", at)
    now = audit_of(job, "job.audit-quick", storage, changed(MISSING))
    assert kept(storage, job, now)["00000000dd"].run == "stranger.audit-3"
    key, content = DAMAGE[what]
    paths = JobPaths("stranger")
    named = {None: paths.photo_sizes(stranger.incarnation), "plan": paths.plan(stranger.incarnation)}
    storage.write(named.get(key) or str(key), content)
    assert kept(storage, job, now) == {"00000000dd": Before(run="job.audit-3", finding=MISSING.id)}


def test_an_audit_of_a_removed_job_of_that_name_says_nothing(storage: Storage, job: Job) -> None:
    audit_of(job.model_copy(update={"incarnation": "f" * 32, "run": None}), "job.audit-3", storage, MISSING)
    decide(storage, "job.audit-3", MISSING, "wrong")
    assert kept(storage, job, audit_of(job, "job.audit-4", storage, changed(MISSING))) == {}


def test_each_decision_is_read_once_and_findings_only_where_somebody_decided(
    job: Job, storage: Storage, tmp_path: Path
) -> None:
    counted = Counted(str(tmp_path / "store"))
    audit_of(job, "job.audit-2", storage, MISSING)
    audit_of(job, "job.audit-3", storage, MISSING, WRONG_CLASS)
    audit_of(job, "job.audit-4", storage, MISSING)
    decide(storage, "job.audit-3", MISSING, "wrong")
    decide(storage, "job.audit-4", MISSING, "skip")
    others = OtherAudits(counted)
    first = others.besides("now")
    assert [other.run for other in first] == ["job.audit-3"]
    read = [key for key in counted.keys_read if "findings.json" in key or "decisions/" in key]
    folder, skipped = (RunPaths(run).decisions for run in ("job.audit-3", "job.audit-4"))
    assert read == [f"{folder}/000001.json", RunPaths("job.audit-3").findings, f"{skipped}/000001.json"]
    counted.keys_read.clear()
    assert others.besides("job.audit-2")[0] is first[0]
    assert others.besides("job.audit-3") == ()
    assert others.besides("now")[0] is first[0], "still known after somebody looked at it itself"
    assert not [key for key in counted.keys_read if "findings.json" in key or "decisions/" in key]
    decide(storage, "job.audit-3", WRONG_CLASS, "right")
    (second,) = others.besides("now")
    assert [(each.finding.id, each.is_kept) for each in second.answered] == [
        (MISSING.id, True),
        (WRONG_CLASS.id, False),
    ]


def test_a_decision_on_the_audit_itself_wins(storage: Storage, job: Job) -> None:
    audit_of(job, "job.audit-3", storage, MISSING, WRONG_CLASS)
    for each in (MISSING, WRONG_CLASS):
        decide(storage, "job.audit-3", each, "wrong")
    here = changed(WRONG_CLASS), changed(MISSING, id="00000000ff"), changed(MISPLACED, id="00000000ee")
    now = audit_of(job, "job.audit-4", storage, *here)
    labels = kept_labels(storage, job, now)
    assert (set(labels.before), set(labels.here)) == ({"00000000dd", "00000000ff"}, set())
    decide(storage, "job.audit-4", here[0], "open")
    decide(storage, "job.audit-4", here[2], "wrong")
    labels = kept_labels(storage, job, now)
    assert (set(labels.before), set(labels.here)) == ({"00000000ff"}, {"00000000ee"})


def audit_command(store: Storage, *more: str) -> list[str]:
    """What `audit job --quick` says of an audit that is done, `more` options given."""
    words = ["audit", "job", "--quick", "--run", "trained", "--local", "--store", store.root, *more]
    done = subprocess.run(
        [sys.executable, "-m", "producer", *words],
        cwd=Path(__file__).parents[4],
        env={"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_audit_says_how_many_of_its_doubts_were_answered_with_no_before(storage: Storage, job: Job) -> None:
    receipts = [receipt for shard in job.shards if (receipt := read_receipt(storage, job, shard))]
    dataset_files(job, receipts, storage)
    trained = RunSpec(job="job", incarnation=job.incarnation, run="trained")
    storage.write(RunPaths("trained").request, trained.to_json().encode())
    storage.write(RunPaths("trained").run, make_note(job.incarnation))
    audit_of(job, "job.audit-3", storage, MISSING, WRONG_CLASS)
    audit_of(job, "job.audit-quick", storage, changed(MISSING), changed(WRONG_CLASS, id="00000000ff"))
    quick = RunSpec(job="job", incarnation=job.incarnation, run="job.audit-quick", audits=("trained",))
    storage.write(RunPaths(quick.run).request, quick.to_json().encode())
    assert not [line for line in audit_command(storage) if "before" in line]
    for each in (MISSING, WRONG_CLASS):
        decide(storage, "job.audit-3", each, "wrong")
    told = audit_command(storage)
    assert "2 doubts were answered with no in an earlier audit: the page counts them as decided" in told
    assert [line for line in told if line.startswith("all 2 doubts: ")], "nothing is taken out of the table"
    [line] = audit_command(storage, "--json")
    found = json.loads(line)
    assert found["kept_before"] == sorted(finding["id"] for finding in found["findings"])
    decide(storage, "job.audit-quick", changed(MISSING), "open")
    told = audit_command(storage)
    assert "1 doubt was answered with no in an earlier audit: the page counts it as decided" in told
