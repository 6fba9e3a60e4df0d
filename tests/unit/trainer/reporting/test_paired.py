"""Two runs on the photos that both were measured on: what differs, how sure that is, and what is left out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.audit.seen import SeenSplit
from shared.errors import FormatError
from shared.jobs.paths import RunPaths
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.reporting.looked import SIDE, Objects, Seen, coco, detections
from tests.unit.trainer.reporting.test_compare import finished
from trainer.evaluation.detections_file import detections_file, read_detections
from trainer.evaluation.measure import measure
from trainer.reporting.compare import against_first, compare_runs, paired_tables
from trainer.reporting.compare_page import compare_page
from trainer.reporting.paired import paired

LABELS = ("nine", "ten")
Pictures = Sequence[tuple[Objects, Seen]]
# Of ten photos: both classes are there; the first model finds every nine and no ten, the second all.
BEFORE: Pictures = [([(0, 1), (3, 2)], [(0, 1, 0.9)])] * 10
NOW: Pictures = [([(0, 1), (3, 2)], [(0, 1, 0.9), (3, 2, 0.8)])] * 10


def seen_split(
    pictures: Pictures, labels: Sequence[str] = LABELS, first: int = 0, side: int = SIDE, resize: str = "stretch"
) -> SeenSplit:
    """What a run keeps of photos that are named from `first` on, in pictures of `side` px."""
    return read_detections(kept(pictures, labels, first, side, resize), "x")


def kept(
    pictures: Pictures, labels: Sequence[str] = LABELS, first: int = 0, side: int = SIDE, resize: str = "stretch"
) -> bytes:
    truth, scale = coco(pictures, labels), side / SIDE
    for image in truth["images"]:
        image["file_name"] = f"{first + image['id']:03d}.jpg"
    for row in truth["annotations"]:
        row["bbox"] = [scale * value for value in row["bbox"]]
    seen = {}
    for at, (_, found) in enumerate(pictures, start=1):
        own = detections(found)
        seen[at] = type(own)(boxes=own.boxes * np.float32(scale), class_ids=own.class_ids, scores=own.scores)
    facts: dict[str, Any] = {"run": "r", "form": "int8", "split": "test", "image_size": side, "resize": resize}
    return detections_file(truth, seen, labels=tuple(labels), **facts)


def test_a_run_that_learnt_from_the_photos_of_the_other_is_named() -> None:
    """Where a job has neither test nor val, its run is measured on train."""
    judged, train = seen_split(BEFORE), seen_split(NOW).model_copy(update={"split": "train"})
    told = "now has learnt from these very photos: it looks better than it is"
    pair = paired(judged, train, ("before", "now"))
    assert pair.remarks == [told]
    assert told in paired_tables([pair])
    assert paired(train, train, ("before", "now")).remarks == [], "both have, and the photos are called train photos"


def test_a_single_photo_makes_nothing_sure() -> None:
    pair = paired(seen_split(BEFORE[:1]), seen_split(NOW[:1]), ("before", "now"))
    ten = {row.label: row for row in pair.rows}["ten"]
    assert ten.points == pytest.approx(100)
    assert (ten.interval, ten.is_sure) == ((-100.0, 100.0), False)


def test_photos_of_one_scene_make_nothing_sure() -> None:
    one_scene = {"scene": "video"}
    before, now = (
        split.model_copy(update={"images": tuple(image.model_copy(update=one_scene) for image in split.images)})
        for split in (seen_split(BEFORE), seen_split(NOW))
    )
    ten = {row.label: row for row in paired(before, now, ("before", "now")).rows}["ten"]
    assert (ten.interval, ten.is_sure) == ((-100.0, 100.0), False)
    ten = {row.label: row for row in paired(now, seen_split(BEFORE), ("now", "before")).rows}["ten"]
    assert ten.is_sure, "the scenes of the second run count, as its annotations do"


def test_the_class_that_got_better_is_the_one_that_is_sure() -> None:
    pair = paired(seen_split(BEFORE), seen_split(NOW), ("before", "now"))
    rows = {row.label: row for row in pair.rows}
    assert list(rows) == ["mAP50", "mAP", "nine", "ten"]
    assert (rows["nine"].points, rows["nine"].interval, rows["nine"].is_sure) == (0.0, (0.0, 0.0), False)
    assert rows["ten"].points == pytest.approx(100)
    assert rows["ten"].is_sure
    assert rows["mAP50"].points == pytest.approx(50)
    assert (rows["mAP50"].objects, rows["ten"].objects, pair.photos) == (20, 10, 10)
    assert pair.remarks == []


def numbered_backwards(split: SeenSplit) -> SeenSplit:
    """The same photos, whose ids, hashes of their paths, are in another order than their names."""
    new = {image.id: 1000 - image.id for image in split.images}
    moved = {
        name: tuple({**row, "image_id": new[row["image_id"]]} for row in getattr(split, name))
        for name in ("annotations", "detections")
    }
    return split.model_copy(
        update={"images": tuple(image.model_copy(update={"id": new[image.id]}) for image in split.images), **moved}
    )


def test_equal_scores_give_the_figures_that_the_run_was_measured_with() -> None:
    """Of equal scores the judge takes the first photo's first: which that is changed mAP50 of few photos by points."""
    pictures: Pictures = [([(0, 1)], [(0, 1, 0.5)]), ([(0, 1)], [(9, 1, 0.5)])]
    split = numbered_backwards(seen_split(pictures, labels=("nine",)))
    ids = split.photos()
    truth = {"images": [{"id": at} for at in ids.values()], "annotations": [dict(row) for row in split.annotations]}
    truth["categories"] = [{"id": 1, "name": "nine"}]
    seen = {ids[f"{at:03d}.jpg"]: detections(found) for at, (_, found) in enumerate(pictures, start=1)}
    expected = 100 * measure(truth, seen).figures["map50"]
    assert expected == pytest.approx(100 * 51 / 101 / 2)
    (row, *_) = paired(split, split, ("first", "second")).rows
    assert (row.first, row.second) == pytest.approx((expected, expected))


def test_no_difference_has_no_sign_of_one() -> None:
    pair = paired(seen_split(BEFORE), seen_split(NOW), ("before", "now"))
    tiny = replace(pair.rows[2], points=-0.01, interval=(-0.04, 0.04))
    close = replace(pair, rows=[tiny])
    for shown in (paired_tables([close]), compare_page([], [close], [])):
        assert "-0.0" not in shown
        assert "+0.0" in shown
    back = paired(seen_split(NOW), seen_split(BEFORE), ("now", "before"))
    assert [row.points for row in back.rows] == [
        pytest.approx(-row.points) for row in pair.rows if row.points is not None
    ]


def test_a_mixed_change_is_not_called_sure() -> None:
    mixed = [*NOW[:5], *[([(0, 1), (3, 2)], [(3, 2, 0.8)])] * 5]
    other = [*[([(0, 1), (3, 2)], [(3, 2, 0.8)])] * 5, *NOW[5:]]
    rows = {row.label: row for row in paired(seen_split(mixed), seen_split(other), ("a", "b")).rows}
    assert rows["nine"].interval is not None
    assert rows["nine"].interval[0] < 0 < rows["nine"].interval[1]
    assert not rows["nine"].is_sure


def test_figures_are_those_of_the_runs_own_evaluation() -> None:
    truth = coco(NOW, LABELS)
    own = measure(truth, {at: detections(found) for at, (_, found) in enumerate(NOW, start=1)}).figures
    rows = {row.label: row for row in paired(seen_split(BEFORE), seen_split(NOW), ("a", "b")).rows}
    assert rows["mAP"].second == pytest.approx(100 * own["map"])
    assert rows["ten"].second == pytest.approx(100 * own["per_class"]["ten"]["ap50"])


def test_photos_and_classes_of_one_run_alone_are_left_out_and_said() -> None:
    pair = paired(seen_split(BEFORE), seen_split(NOW, ("nine", "king"), first=4), ("before", "now"))
    assert (pair.photos, pair.only) == (6, {"before": 4, "now": 4})
    assert [row.label for row in pair.rows] == ["mAP50", "mAP", "nine"]
    assert pair.remarks[0] == "4 test photos of before are not among the other's and are left out"
    assert pair.remarks[-2:] == ["only before knows ten", "only now knows king"]


def test_one_photo_is_spoken_of_as_one() -> None:
    pair = paired(seen_split(BEFORE), seen_split([([(0, 1)], NOW[0][1]), *NOW[1:]], first=1), ("before", "now"))
    assert pair.remarks[0] == "1 test photo of before is not among the other's and is left out"
    assert "1 of the photos has other annotations now: judged by those of now" in pair.remarks


def test_a_class_whose_accents_are_written_in_two_ways_is_one() -> None:
    before, now = (seen_split(BEFORE, (name, "king")) for name in ("ne\u0301uf", "n\u00e9uf"))
    assert [row.label for row in paired(before, now, ("before", "now")).rows] == ["mAP50", "mAP", "n\u00e9uf", "king"]


@pytest.mark.parametrize(("split", "called"), [("val", "10 val photos"), ("test", "10 photos")])
def test_photos_are_called_by_the_split_that_both_were_measured_on(split: str, called: str) -> None:
    before, now = seen_split(BEFORE).model_copy(update={"split": split}), seen_split(NOW)
    pair = paired(before, now.model_copy(update={"split": "val"}), ("before", "now"))
    assert f"on the {called} of both" in " ".join(paired_tables([pair]).split())
    assert f"On the {called} that both" in compare_page([], [pair], [])


def test_runs_without_a_photo_in_common_have_no_rows() -> None:
    pair = paired(seen_split(BEFORE), seen_split(NOW, first=100), ("before", "now"))
    assert (pair.photos, pair.rows) == (0, ())


def test_corrected_annotations_count_for_both_and_another_size_is_no_correction() -> None:
    corrected = [([(0, 1)], found) for _, found in NOW[:3]]
    pair = paired(seen_split(NOW), seen_split([*corrected, *NOW[3:]], side=2 * SIDE), ("before", "now"))
    assert pair.relabelled == 3
    assert "3 of the photos have other annotations now: judged by those of now" in pair.remarks
    assert {row.points for row in pair.rows} == {0}, "both saw the same, at two sizes"


def test_an_object_that_is_difficult_now_is_another_annotation() -> None:
    before, now = seen_split(NOW), seen_split(NOW)
    now.annotations[0]["ignore"] = 1
    pair = paired(before, now, ("before", "now"))
    assert pair.relabelled == 1
    assert [row.objects for row in pair.rows] == [19, 19, 9, 10]


def test_pictures_that_are_fitted_otherwise_are_judged_by_their_own_annotations() -> None:
    pair = paired(seen_split(BEFORE, resize="letterbox"), seen_split(NOW), ("before", "now"))
    assert pair.relabelled is None
    assert pair.rows[0].points == pytest.approx(50)


def test_table_and_page_say_it_and_a_run_of_before_says_what_to_type(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for run, pictures in (("before", BEFORE), ("now", NOW), ("old", None)):
        finished(tmp_path, run, 0.9, 0.89)
        storage.write(RunPaths(run).request, RunSpec(run=run, job="j").to_json().encode())
        if pictures is not None:
            storage.write(f"{RunPaths(run).root}/detections_test.json", kept(pictures, ("<b>nine", "ten")))
    rows = compare_runs(["before", "now", "old"], storage)
    pairs, why_not = against_first(rows, storage)
    assert [pair.second for pair in pairs] == ["now"]
    assert "run old has no detections_test.json" in why_not[0]
    assert "export old" in why_not[0]
    table = paired_tables(pairs)
    assert max(map(len, table.splitlines())) <= 80
    (line,) = (line for line in table.splitlines() if line.startswith("ten"))
    assert line.split() == ["ten", "10", "0.0", "100.0", "+100.0", "+100.0", "to", "+100.0", "*"]
    page = compare_page(rows, pairs, why_not)
    assert "now against before" in page
    assert "- (test)" in page
    assert "&lt;b&gt;nine" in page
    assert "<b>nine" not in page
    assert page.count('class="range better"') == 3


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for run in ("a", "b"):
        finished(tmp_path, run, 0.9, 0.89)
        storage.write(f"{RunPaths(run).root}/detections_test.json", kept(NOW)[:-20])
    with pytest.raises(FormatError, match=r"runs/a/detections_test\.json: .*damaged"):
        against_first(compare_runs(["a", "b"], storage), storage)
