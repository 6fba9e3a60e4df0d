"""What a picture of the report says: found, missed, made up, confused; which pictures are shown; where names go."""

import pytest

from shared.colours import MISTAKE
from shared.drawing import Mark
from tests.unit.trainer.evaluation.test_curves import detections, truth
from trainer.reporting.gallery import GRID_PICTURES, JudgedPicture, choose, judge_picture, page_marks

LABELS = ("nine", "ten")
HERE, THERE, ELSEWHERE = (0, 0, 40, 40), (100, 100, 140, 140), (200, 200, 240, 240)


def looks(judged: JudgedPicture) -> list[tuple[str, str, bool]]:
    """Text and line of every mark that is seen, and whether it is a mistake."""
    return [(mark.text, mark.dash, mark.colour == MISTAKE) for mark in judged.seen]


def test_each_kind_of_mistake_has_its_own_line_and_words() -> None:
    seen = detections((*HERE, 1, 0.9), (*THERE, 2, 0.8), (*ELSEWHERE, 1, 0.7))
    judged = judge_picture(seen, truth((*HERE, 1), (*THERE, 1), (60, 60, 90, 90, 2)), LABELS)
    assert looks(judged) == [
        ("ten 0.80, is nine", "double", True),
        ("missed: ten", "dashed", True),
        ("made up: nine 0.70", "dotted", True),
        ("nine 0.90", "solid", False),
    ]
    assert [mark.text for mark in judged.there] == ["nine", "nine", "ten"]
    assert judged.verdict == "1 of 3 found, 1 missed, 1 confused, 1 made up"
    assert judged.f1 == pytest.approx(2 / 6)


def test_a_box_too_far_off_is_badly_placed_and_not_made_up() -> None:
    judged = judge_picture(detections((20, 0, 60, 40, 1, 0.9)), truth((*HERE, 1)), LABELS)
    assert looks(judged) == [("missed: nine", "dashed", True), ("badly placed: nine 0.90", "dotted", True)]
    assert (judged.verdict, judged.f1, judged.made_up_scores) == ("0 of 1 found, 1 missed, 1 badly placed", 0, [])


def test_a_crowded_picture_has_signs_instead_of_words() -> None:
    there = truth(*[(x, y, x + 30, y + 30, 1) for x in (0, 40, 80) for y in (0, 40, 80)])
    judged = judge_picture(detections((*ELSEWHERE, 1, 0.7)), there, LABELS)
    assert looks(judged)[0] == ("- nine", "dashed", True)
    assert looks(judged)[-1] == ("+ nine 0.70", "dotted", True)


def test_long_names_are_cut_and_keep_their_score() -> None:
    judged = judge_picture(detections((*HERE, 1, 0.9)), truth((*HERE, 2)), ("a name longer than a tile", "b"))
    assert looks(judged) == [("a name longer tha… 0.90, is b", "double", True)]


def test_difficult_objects_count_neither_way() -> None:
    judged = judge_picture(detections((*HERE, 1, 0.9)), truth((*HERE, 1), (*THERE, 2), ignored=(0, 1)), LABELS)
    assert looks(judged) == [("nine 0.90?", "solid", False)]
    assert [mark.text for mark in judged.there] == ["nine?", "ten?"]
    assert (judged.objects, judged.mistakes, judged.f1) == (0, 0, 1)


def test_empty_picture_left_empty_is_right() -> None:
    assert judge_picture(detections(), truth(), LABELS).f1 == 1
    assert judge_picture(detections((*HERE, 1, 0.9)), truth(), LABELS).f1 == 0


def picture(found: int = 0, missed: int = 0, made_up: int = 0) -> JudgedPicture:
    return JudgedPicture(
        there=(), seen=(), found_px=[9.0] * found, missed_px=[9.0] * missed, made_up_scores=[0.9] * made_up, confused=0
    )


def test_an_empty_picture_seen_as_empty_is_neither_worst_nor_best() -> None:
    judged = {1: picture(), 2: picture(found=1), 3: picture(missed=1), 4: picture()}
    assert judged[1].verdict == "nothing there, nothing seen"
    assert choose(judged) == {"even": [1, 2, 3, 4], "worst": [3], "best": [2]}


def test_the_worst_have_a_mistake_and_the_best_an_object() -> None:
    judged = {at: picture(found=at) for at in range(1, 31)} | {40: picture(made_up=1), 41: picture(found=1, missed=1)}
    chosen = choose(judged)
    assert chosen["worst"] == [40, 41]
    assert chosen["best"] == list(range(30, 18, -1))
    assert len(chosen["even"]) == GRID_PICTURES
    assert chosen["even"][0] == 1
    assert chosen["even"][-1] == 41


def test_a_small_split_is_halved_and_no_picture_is_worst_and_best() -> None:
    chosen = choose({at: picture(found=at, missed=1) for at in range(1, 6)})
    assert chosen["worst"] == [1, 2, 3]
    assert chosen["best"] == [5, 4]


def test_marks_of_the_page_are_shares_of_the_picture() -> None:
    marks = [
        Mark(box=(-10, 32, 160, 400), text="missed: nine", colour=MISTAKE, dash="dashed"),
        Mark(box=(160, 160, 192, 192), text="a class", colour=(233, 180, 86)),
    ]
    last, first = page_marks(marks, 320)  # the first lies on top
    assert (first.left, first.top, first.width, first.height) == (0, 10, 50, 90)
    assert (first.colour, first.ink, first.dash) == ("#cd181e", "#ffffff", "dashed")
    assert (last.text, last.ink) == ("a class", "#000000")
    assert last.name_at is not None
    assert last.name_at == pytest.approx((50, 43.6))


def test_a_name_without_room_is_left_out() -> None:
    marks = [Mark(box=(100, 100, 120, 120), text="something", colour=MISTAKE)] * 9
    places = [mark.name_at for mark in page_marks(marks, 320)]
    assert None in places
    assert places[-1] is not None
