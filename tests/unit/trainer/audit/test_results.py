"""What an audit writes: the page and the proposals, whatever photos and classes are called."""

from pathlib import Path

import numpy as np

from shared.annotation.reader import read_annotation
from shared.audit.findings import AuditFindings
from shared.jobs.manifest import Manifest
from shared.placement import place
from shared.specs.data import JobSpec
from trainer.audit.analysis import ranked
from trainer.audit.page import render_page
from trainer.audit.photo_frames import PhotoFrame
from trainer.audit.photos import LabelFinding
from trainer.audit.proposals import proposals
from trainer.data.examples import ShardPicture
from trainer.detections import Detections
from trainer.evaluation.curves import TruthBoxes

LABELS = ("<b>cat</b>", "dog")
FILE = "a/<img src=x onerror=alert(1)>.jpg"
BOXES = [(10.0, 20.0, 110.0, 220.0), (200.0, 50.0, 400.0, 150.0), (300.0, 150.0, 390.0, 190.0)]


def frame(file: str = FILE) -> PhotoFrame:
    return PhotoFrame(
        image_id=5,
        file_name=file,
        width=600,
        height=300,
        placement=place(600, 300, 96, "letterbox"),
        marked=TruthBoxes(
            boxes=np.array(BOXES, np.float32), class_ids=np.array([1, 2, 2]), is_ignored=np.array([False, True, False])
        ),
        seen=Detections(
            boxes=np.zeros((0, 4), np.float32), class_ids=np.zeros(0, np.int64), scores=np.zeros(0, np.float32)
        ),
    )


def found(file: str = FILE) -> AuditFindings:
    rows = [
        LabelFinding(
            kind="missing",
            file_name=file,
            object_index=None,
            score=0.95,
            box=(500.0, 200.0, 590.0, 290.0),
            proposed_box=(500.0, 200.0, 590.0, 290.0),
            proposed_class_id=1,
            reason="a <i>cat</i> & no label",
        ),
        LabelFinding(
            kind="misplaced",
            file_name=file,
            object_index=1,
            score=0.9,
            box=BOXES[1],
            proposed_box=(190.0, 50.0, 400.0, 160.0),
            proposed_class_id=2,
            reason="10 px more on the left",
        ),
        LabelFinding(
            kind="made_up",
            file_name=file,
            object_index=2,
            score=0.6,
            box=BOXES[2],
            proposed_box=None,
            proposed_class_id=None,
            reason="nothing is seen",
        ),
    ]
    findings = ranked(rows[::-1], [frame(file)], LABELS)
    return AuditFindings(
        run="j.audit-3", job="j", folds=3, photos=1, boxes=3, remarks=("so <u>few</u>",), findings=findings
    )


def manifest() -> Manifest:
    return Manifest(
        job="j",
        request_digest="0",
        labels=LABELS,
        image_size=96,
        resize="letterbox",
        splits={},
        failed=(),
        counters={},
        class_counts={},
    )


def test_findings_are_ranked_and_say_what_is_proposed() -> None:
    missing, misplaced, made_up = found().findings
    assert (missing.object, missing.class_name, missing.box) == (None, "", None)
    assert missing.proposal == "add <b>cat</b> 500 200 590 290"
    assert (misplaced.object, misplaced.class_name) == (2, "dog")
    assert misplaced.proposal == "move to 190 50 400 160"
    assert made_up.proposal == "remove"
    assert found() == found(), "ids are the same each time"
    assert len({finding.id for finding in (*found().findings, *found("b.jpg").findings)}) == 6


def test_the_page_is_one_file_without_scripts_in_which_names_are_text() -> None:
    stored = ShardPicture(image_id=5, file_name=FILE, rgb=np.full((96, 96, 3), 90, np.uint8))
    page = render_page(found(), found().findings, {FILE: frame()}, {FILE: stored}, LABELS)
    for tag in ("<script", "<b>cat", "<img", "<i>cat", "<u>few", "http:", "https:"):
        assert tag not in page
    assert "&lt;b&gt;cat&lt;/b&gt;" in page
    assert page.count('<figure class="find"') == 3
    assert page.count('class="view c') == 6
    assert page.count("data:image/jpeg;base64,") == 3


def test_proposals_are_read_back_by_our_own_reader() -> None:
    ((name, xml),) = proposals(found("a/one.jpg"), {"a/one.jpg": frame("a/one.jpg")}, manifest(), "/photos")
    assert name == "a/one.xml"
    read = read_annotation(xml, file=name, spec=JobSpec())
    assert read.size == (600, 300)
    assert read.path == str(Path("/photos/a/one.jpg"))
    assert [(each.name, each.box, each.difficult) for each in read.objects] == [
        ("<b>cat</b>", (10, 20, 110, 220), False),
        ("dog", (190, 50, 400, 160), True),
        ("<b>cat</b>", (500, 200, 590, 290), False),
    ]


def test_what_is_more_likely_right_than_wrong_is_not_proposed() -> None:
    result = found("one.jpg")
    unsure = [finding.model_copy(update={"score": 0.49}) for finding in result.findings]
    doubted = result.model_copy(update={"findings": (result.findings[0], *unsure[1:])})
    ((name, xml),) = proposals(doubted, {"one.jpg": frame("one.jpg")}, manifest(), "/photos")
    kept = [each.box for each in read_annotation(xml, file=name, spec=JobSpec()).objects]
    assert kept == [*BOXES, (500, 200, 590, 290)]
    assert list(proposals(result.model_copy(update={"findings": tuple(unsure)}), {}, manifest(), "/photos")) == []


def test_two_photos_of_one_stem_have_an_xml_each() -> None:
    one, two = found("a/one.jpg"), found("a/one.png")
    both = one.model_copy(update={"findings": (*one.findings, *two.findings)})
    frames = {name: frame(name) for name in ("a/one.jpg", "a/one.png")}
    assert [name for name, _ in proposals(both, frames, manifest(), "/photos")] == ["a/one.xml", "a/one.png.xml"]
