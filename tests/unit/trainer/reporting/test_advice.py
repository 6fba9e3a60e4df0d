"""Each rule of the advice: the fact that makes it speak, what it says to do, and that it is silent otherwise."""

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import typer.main

from tests.unit.trainer.reporting.looked import Objects, Seen, facts_of, look, manifest_of
from trainer.evaluation.forms import JudgingSplits
from trainer.reporting.advice import MOST_LINES, advise

GOOD: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [(0, 1, 0.9), (3, 2, 0.9)])
# 40 photos without a mistake: as sure as can be.
CLEAN = [GOOD] * 40


def history(*val_map50: float | None, seconds: float = 10.0) -> list[dict[str, float | None]]:
    return [
        {"epoch": at, "seconds": seconds, "val_map50": figure, "val_map": figure}
        for at, figure in enumerate(val_map50, start=1)
    ]


def said(text: str, lines: list[str]) -> str:
    """The one line with `text` in it."""
    found = [line for line in lines if text in line]
    assert len(found) == 1, lines
    return found[0]


def test_with_nothing_to_say_it_says_what_to_try() -> None:
    assert advise(facts_of(look(CLEAN))) == [
        "Nothing stands out. Try the model on photos that it has not seen:\n"
        "voc2tflite predict STORE/runs/mine/model_int8.tflite PHOTOS --out seen"
    ]


def test_shards_given_up_are_made_again() -> None:
    manifest = manifest_of(("nine", "ten"), failed=("train-00001-of-00002",))
    assert "voc2tflite retry mine --store STORE" in said(
        "1 shard was given up", advise(facts_of(look(CLEAN), manifest=manifest))
    )


def test_figures_of_the_training_photos_promise_nothing() -> None:
    assert "--split 60/20/20" in said("Measured on the very photos", advise(facts_of(look(CLEAN, split="train"))))


def test_photos_that_the_run_before_has_learned_flatter_the_figures() -> None:
    facts = facts_of(look([GOOD] * 4), spec={"start": "weights/0123456789abcdef-old.keras", "backbone": "conv"})
    for number, image in enumerate(facts.figures.inputs.truth["images"]):
        image["file_name"] = f"{number}.jpg"
    line = said("goes on from", advise(replace(facts, learned={"0.jpg", "1.jpg", "3.jpg", "other.jpg"})))
    assert line.startswith("old, which this run goes on from, has learned from 3 of 4 test photos: the figures are too")
    assert not [line for line in advise(replace(facts, learned={"other.jpg"})) if "goes on from" in line]


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        ("lists", "name them in ImageSets/Main/test.txt"),
        ("folders", "move them into the folder test"),
        ("seeded", "submit the folder again with --split 60/20/20"),
    ],
)
def test_photos_are_moved_to_a_split_by_what_deals_them(rule: str, remedy: str) -> None:
    line = said("Measured on the very photos", advise(facts_of(look(CLEAN, split="train"), split_rule=rule)))
    assert line.endswith(f": {remedy}")
    line = said("so few that luck", advise(replace(facts_of(look(CLEAN), split_rule=rule), exported="epoch 3")))
    assert ("--split" in line) == (rule == "seeded")


def test_a_split_without_an_object_that_counts_is_named_with_what_judged_instead() -> None:
    facts = replace(facts_of(look(CLEAN)), split_rule="lists")
    assert not any("has an object that counts" in line for line in advise(facts))
    silent_val = advise(replace(facts, splits=JudgingSplits("test", "test", "train", ("val",))))
    assert said("No val photo has an object that counts", silent_val).endswith(
        "so no epoch was chosen by it, the gate judged by test, the threshold is of train: put photos with objects "
        "there: name them in ImageSets/Main/val.txt"
    )
    silent_test = advise(replace(facts, splits=JudgingSplits("val", "val", "val", ("test",))))
    assert "so the figures are of val: put" in said("No test photo has an object that counts", silent_test)
    every = advise(replace(facts, splits=JudgingSplits("test", "val", "val", ("train", "val", "test"))))
    assert not any("has an object that counts" in line for line in every), "nothing judged instead"


def test_a_model_that_finds_nothing_sends_to_the_boxes() -> None:
    blind: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [])
    line = said("It finds next to nothing (mAP50 0.0 %)", advise(facts_of(look([blind] * 40))))
    assert line.splitlines()[1] == "voc2tflite inspect mine --store STORE --png boxes.png"


@pytest.mark.parametrize(
    ("spec", "run", "remedy"),
    [
        ({"max_minutes": 3, "model": "nano"}, "mine-6min", "--model nano --max-minutes 6"),
        ({"max_minutes": 12, "run": "mine-6min"}, "mine-20epochs", "--max-minutes 12 --epochs 20"),
        ({"max_minutes": None}, "mine-20epochs", "--max-minutes 0 --epochs 20"),
        ({"epochs": 10}, "mine-20epochs", "--epochs 20"),
        ({"epochs": 10, "max_minutes": 3}, "mine-8min", "--max-minutes 8 --epochs 20"),
        ({"epochs": 40, "stop_at_map": 0.8}, "mine-whole", "--epochs 40"),
    ],
)
def test_a_rise_until_the_end_asks_for_a_longer_training(spec: dict[str, Any], run: str, remedy: str) -> None:
    rose = history(0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, seconds=12)
    line = said("still rose at the end", advise(facts_of(look(CLEAN, history=rose), spec=spec)))
    assert line.startswith(
        "val mAP still rose at the end: 65.0 % in the fourth fifth of the epochs, 77.5 % in the last: train longer:\n"
    )
    assert line.endswith(f"\nvoc2tflite submit --job mine --run {run} --store STORE --local {remedy} --backbone conv")


@pytest.mark.parametrize(("patience", "remedy"), [(3, "--epochs 400"), (4, "--epochs 20 --patience 4")])
def test_a_training_that_patience_ended_goes_on_without_it(patience: int, remedy: str) -> None:
    blind: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [])
    facts = facts_of(
        look([blind] * 40, history=history(0.0, 0.04, 0.03, None, 0.04)), spec={"epochs": 400, "patience": patience}
    )
    command = said("It finds next to nothing", advise(facts)).splitlines()[-1]
    assert f" {remedy} " in command.replace(" --backbone conv", "") + " "


@pytest.mark.parametrize("option", ["start", "weights"])
def test_a_longer_training_begins_with_the_same_file_of_the_store(option: str) -> None:
    rose = history(0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, seconds=12)
    spec = {option: "weights/0123.keras", "backbone": "mobilenet_v2"}
    command = said("still rose", advise(facts_of(look(CLEAN, history=rose), spec=spec))).splitlines()[-1].split()
    name = {"start": "--from", "weights": "--weights"}[option]
    assert command[command.index(name) + 1] == "STORE/weights/0123.keras"


def test_a_rise_on_few_objects_or_since_a_lucky_early_validation_is_none() -> None:
    rose, lucky = history(*[0.2] * 8, 0.8, 0.8), history(0.1, 0.85, *[0.2] * 6, 0.8, 0.8)
    assert not any("still rose" in line for line in advise(facts_of(look([GOOD] * 4, history=rose))))
    assert not any("still rose" in line for line in advise(facts_of(look(CLEAN, history=lucky))))


def test_an_epoch_chosen_by_few_objects_is_told() -> None:
    exported = "epoch 3 of 10 was exported: the best of 10 validations on 8 objects"
    few, many = (replace(facts_of(look([GOOD] * count)), exported=exported) for count in (4, 60))
    line = said("was exported", advise(few))
    assert line.startswith("Epoch 3 of 10 was exported: the best of 10 validations on 8 objects, so few that luck")
    assert not any("was exported" in line for line in advise(many))


@pytest.mark.parametrize("figures", [(0.1, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.81, 0.81), (None,) * 10, (0.2,), ()])
def test_a_level_end_asks_for_nothing(figures: tuple[float | None, ...]) -> None:
    assert advise(facts_of(look(CLEAN, history=history(*figures))))[0].startswith("Nothing stands out")


def test_a_fall_after_the_best_is_learning_by_heart() -> None:
    fell = history(0.5, 0.8, 0.9, 0.9, 0.85, 0.8, 0.8, 0.8, 0.8, 0.8)
    line = said("fell from 90.0 % in epoch 3 to 80.0 %", advise(facts_of(look(CLEAN, history=fell))))
    assert "Add photos, or change them more (--zoom 0.5, --rotate 10)" in line


def test_a_branch_that_begins_anew_is_no_fall_and_a_rise_in_it_asks_for_nothing() -> None:
    rose = history(*[at / 100 for at in range(100)], seconds=1)
    assert any("still rose" in line for line in advise(facts_of(look(CLEAN, history=rose))))
    fell = history(*[0.5] * 5, *[0.9] * 5, *[0.5] * 10)
    assert any("fell from" in line for line in advise(facts_of(look(CLEAN, history=fell))))
    for rows in (rose, fell):
        branched = [row | {"branch": float(1 + (at >= 10))} for at, row in enumerate(rows)]
        assert not any("fell" in line or "rose" in line for line in advise(facts_of(look(CLEAN, history=branched))))


def test_longer_means_the_epochs_of_one_branch() -> None:
    rows = [row | {"branch": float(1 + at // 50)} for at, row in enumerate(history(*[0.0] * 150, seconds=1))]
    lines = advise(facts_of(look([([(0, 1)], [(4, 1, 0.9)])] * 4, history=rows)))
    assert "--epochs 100" in said("finds next to nothing", lines), "twice one branch, not all of them"


def test_a_class_taken_for_another_is_named_with_its_count() -> None:
    mixed: tuple[Objects, Seen] = ([(0, 1)], [(0, 2, 0.9)])
    line = said("taken for", advise(facts_of(look([*CLEAN, *[mixed] * 20]))))
    assert line.startswith("nine is taken for ten in 20 of 60: look whether they are labelled alike")
    assert "(submit again with --rename 'nine=ten')" in line


def test_a_single_confusion_is_not_worth_a_line() -> None:
    mixed: tuple[Objects, Seen] = ([(0, 1)], [(0, 2, 0.9)])
    assert not any("taken for" in line for line in advise(facts_of(look([*CLEAN, mixed]))))


def test_a_class_of_one_object_names_the_class_that_may_be_meant() -> None:
    labels = ("quen", "queen")
    manifest = manifest_of(labels, learnt={"quen": 1})
    line = said("quen has 1 object", advise(facts_of(look(CLEAN, labels), manifest=manifest)))
    assert line == (
        "quen has 1 object to learn from: if queen is meant, submit again with --rename 'quen=queen'; "
        "if not, annotate more of it"
    )


def test_the_only_class_is_not_proposed_to_be_left_out() -> None:
    manifest = manifest_of(("cat",), learnt={"cat": 1})
    line = said(
        "cat has 1 object", advise(facts_of(look([([(0, 1)], [(0, 1, 0.9)])] * 40, ("cat",)), manifest=manifest))
    )
    assert line == "cat has 1 object to learn from: annotate some 20 more"


def test_what_is_proposed_of_a_class_works_as_it_is_typed() -> None:
    """By a shell, and by the options: `--ignore-classes` parts its names at commas."""
    labels = ("cup, small", "it's")
    manifest = manifest_of(labels, learnt={"cup, small": 1, "it's": 1})
    advice = advise(facts_of(look(CLEAN, labels), manifest=manifest))
    options = {label: said(f"{label} has", advice).partition("submit again with ")[2].rstrip(")") for label in labels}
    comma = shlex.split(options["cup, small"])
    assert comma == ["--rename", "cup, small=left out", "--ignore-classes", "left out"]
    assert shlex.split(options["it's"]) == ["--ignore-classes", "it's"]


def test_classes_of_few_objects_are_at_most_two_lines() -> None:
    labels = ("dog", "horse", "table", "zebra")
    manifest = manifest_of(labels, learnt={"dog": 2, "horse": 3, "table": 4})
    lines = [line for line in advise(facts_of(look(CLEAN, labels), manifest=manifest)) if "to learn from" in line]
    assert lines == [
        "dog has 2 objects to learn from: annotate some 20 more, or leave it out "
        "(submit again with --ignore-classes 'dog')",
        "horse has 3 objects to learn from (and 1 more class fewer than 10): annotate some 20 more, or leave it out "
        "(submit again with --ignore-classes 'horse')",
    ]


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ({}, ":\nvoc2tflite export mine --store STORE --quantize qat"),
        ({"quantize": "qat"}, "use model_float16.tflite"),
        ({"backbone": "mobilenet_v2"}, "use model_float16.tflite"),
    ],
)
def test_a_sure_loss_of_int8_has_its_remedy(spec: dict[str, Any], remedy: str) -> None:
    lost = {"map50": 0.96, "drop_interval": [1.5, 6.5]}
    line = said("int8 loses 4.0 points (1.5 to 6.5)", advise(facts_of(look(CLEAN), spec=spec, gate=lost)))
    assert line.endswith(remedy)


@pytest.mark.parametrize("gate", [{"map50": 0.96, "drop_interval": [-1.0, 9.0]}, {"map50": 0.995}, {"map50": 0.96}])
def test_a_loss_that_may_be_chance_is_not_told(gate: dict[str, Any]) -> None:
    assert advise(facts_of(look(CLEAN), gate=gate))[0].startswith("Nothing stands out")


def test_what_is_clearly_seen_without_an_annotation_may_lack_one() -> None:
    unlabelled: tuple[Objects, Seen] = ([(0, 1)], [(0, 1, 0.9), (8, 1, 0.8), (9, 1, 0.8), (10, 1, 0.75)])
    line = said("without an annotation", advise(facts_of(look([*CLEAN, unlabelled]))))
    assert line.startswith(
        "3 objects without an annotation are seen with a score of at least 0.7, 3 of them in photos/41"
    )


def test_missed_small_objects_ask_for_larger_pictures() -> None:
    small: tuple[Objects, Seen] = ([(0, 1), (2, 2)], [])
    found: tuple[Objects, Seen] = ([(0, 1), (2, 2)], [(0, 1, 0.9), (2, 2, 0.9)])
    line = said("below 16 px are missed", advise(facts_of(look([small] * 30 + [found] * 20, side=12))))
    assert line.startswith("60 of 100 objects below 16 px are missed: submit again")
    assert "--image-size 480" in line


def test_few_test_photos_are_told_by_where_the_figure_may_lie() -> None:
    half: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [(0, 1, 0.9)])
    facts = facts_of(look([GOOD] * 9 + [half] * 8))
    line, (low, high) = said("may lie anywhere", advise(facts)), facts.metrics["int8"]["map50_interval"]
    told = f"17 test photos: mAP50 may lie anywhere from {100 * low:.0f} to {100 * high:.0f} %."
    assert line.startswith(f"{told} voc2tflite compare tells two runs apart")
    assert "submit the folder again with --split 60/15/25" in line


def test_few_scenes_are_named_beside_their_photos() -> None:
    half: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [(0, 1, 0.9)])
    facts = facts_of(look([GOOD] * 9 + [half] * 8))
    metrics = {form: {**row, "scenes": 3} for form, row in facts.metrics.items()}
    line = said("may lie anywhere", advise(replace(facts, metrics=metrics)))
    assert line.startswith("17 test photos of 3 scenes: ")
    assert "measure on more scenes: submit" in line


def test_four_photos_without_a_mistake_are_as_unsure_as_four_objects() -> None:
    one: tuple[Objects, Seen] = ([(0, 1)], [(0, 1, 0.9)])
    line = said("may lie anywhere", advise(facts_of(look([one] * 4, labels=("nine",)))))
    assert line.startswith("4 test photos: mAP50 may lie anywhere from 25 to 100 %.")


def test_training_photos_are_not_asked_for_to_measure_on_more_of_them() -> None:
    one: tuple[Objects, Seen] = ([(0, 1)], [(0, 1, 0.9)])
    lines = advise(facts_of(look([one] * 4, labels=("nine",), split="train"), split_rule="lists"))
    assert said("Measured on the very photos", lines).endswith("name them in ImageSets/Main/test.txt")
    assert not [line for line in lines if "may lie anywhere" in line]


def test_old_figures_without_an_interval_are_no_stumbling_block() -> None:
    facts = facts_of(look([GOOD] * 5), map50_interval=None)
    assert advise(facts)[0].startswith("Nothing stands out")


def test_a_low_threshold_is_named_with_what_the_usual_one_costs() -> None:
    weak: tuple[Objects, Seen] = ([(0, 1), (3, 2)], [(0, 1, 0.3), (3, 2, 0.9)])
    line = said("The best threshold is 0.25", advise(facts_of(look([weak] * 40, score=0.25))))
    assert "at the usual 0.5 it would find 40 of 80 objects instead of 80" in line
    assert "(--threshold 0.25)" in line


def test_a_class_that_no_test_photo_has_is_named() -> None:
    line = said("No test photo has king", advise(facts_of(look(CLEAN, ("nine", "ten", "king")))))
    assert "another --seed" in line


def test_where_every_test_object_is_difficult_no_longer_training_is_advised() -> None:
    one: tuple[Objects, Seen] = ([(0, 1)], [(0, 1, 0.9)])
    figures = look([one] * 8, labels=("nine", "ten"))
    for row in figures.inputs.truth["annotations"]:
        row["ignore"] = 1
    rows = {name: {"ap50": None, "ap": None, "objects": 0} for name in ("nine", "ten")}
    unmeasured: dict[str, Any] = {"map50": 0.0, "map50_interval": [0.0, 1.0], "objects": 0, "per_class": rows}
    lines = advise(facts_of(figures, **unmeasured))
    assert not [line for line in lines if "finds next to nothing" in line or "may lie anywhere" in line]
    assert said("marked difficult", lines).startswith(
        "All objects of nine in test are marked difficult and count in no"
    )
    assert said("No test photo has", lines).startswith("No test photo has ten:")


def test_advice_has_at_most_five_lines() -> None:
    labels = ("dog", "horse")
    bad: tuple[Objects, Seen] = ([(0, 1), (5, 2)], [(0, 2, 0.9), (8, 1, 0.9), (9, 1, 0.9), (10, 1, 0.9)])
    rose = history(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
    manifest = manifest_of(labels, learnt={"dog": 1, "horse": 2}, failed=("train-00001-of-00002",))
    facts = facts_of(look([bad] * 5 + [GOOD], labels, split="train", history=rose), manifest=manifest)
    assert len(advise(facts)) == MOST_LINES


def test_options_and_commands_that_are_named_exist() -> None:
    """Every `--option` of the module is one of the commands that a person types."""
    from pathlib import Path

    import producer.__main__
    import trainer.__main__
    import trainer.reporting.advice as module
    import worker.__main__

    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    apps = (producer.__main__.app, worker.__main__.app, trainer.__main__.app)
    commands = {name: one for app in apps for name, one in vars(typer.main.get_command(app))["commands"].items()}
    known = {flag for one in commands.values() for option in one.params for flag in option.opts}
    named = set(re.findall(r"--[a-z][a-z0-9-]+", text))
    assert len(named) >= 10
    assert named <= known
    assert set(re.findall(r"\{PROGRAM\} ([a-z]+)", text)) <= set(commands)
