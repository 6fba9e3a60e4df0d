"""Models whose fields carry their options: how texts are read, what is refused, what is typed to ask again."""

from typing import Any

import pytest

from shared.errors import OptionError
from shared.specs.augmentation import Augmentation
from shared.specs.data import DataOptions, JobSpec
from shared.specs.options import options_of, parse_options, words
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions

USUAL = {option.name: None for model in (JobSpec, TrainingOptions) for option in options_of(model)}
SWITCHES = {"flips": True, "vertical_flips": False, "quarter_turns": False, "colours": True, "final": False}


def asked_data(**typed: Any) -> DataOptions:
    return parse_options(DataOptions, USUAL | typed)


def asked_training(**typed: Any) -> TrainingOptions:
    return parse_options(TrainingOptions, USUAL | SWITCHES | typed)


def test_words_are_separated_by_commas_and_empty_ones_left_out() -> None:
    assert asked_data(classes=" a b , ,c\nd,\u2028").classes == ("a b", "c d")


@pytest.mark.parametrize("text", ["old", "=new", "old=", " =new", "old= ", "\u2028=new", "[/x]"])
def test_a_rename_needs_two_names(text: str) -> None:
    with pytest.raises(OptionError, match=r"^--rename .*expected old=new$") as refused:
        asked_data(rename=[text])
    assert text in str(refused.value)


def test_a_new_name_may_have_an_equals_sign() -> None:
    assert asked_data(rename=["a=b=c"]).rename == {"a": "b=c"}


@pytest.mark.parametrize(
    ("typed", "old"), [(r"a\=b=c", "a=b"), (r"a\\=c", "a\\"), (r"a\x07=c", r"a\x07"), (r"\\\=\\\\=c", "\\=\\\\")]
)
def test_an_old_name_may_have_an_equals_sign_behind_a_backslash(typed: str, old: str) -> None:
    spec = asked_data(rename=[typed])
    assert spec.rename == {old: "c"}
    assert words(spec, DataOptions) == ["--rename", typed]


def test_an_equals_sign_of_the_old_name_alone_separates_nothing() -> None:
    with pytest.raises(OptionError, match=r"expected old=new$"):
        asked_data(rename=[r"a\=b"])


@pytest.mark.parametrize("text", ["80", "80/10", "a/b/c", "80/10/-10", "[/x]"])
def test_a_split_is_three_shares(text: str) -> None:
    with pytest.raises(OptionError, match=r"^--split .*three shares"):
        asked_data(split=text)


@pytest.mark.parametrize("text", ["80/10/5", "0/50/50"])
def test_shares_sum_to_100_with_some_for_train(text: str) -> None:
    with pytest.raises(OptionError, match=f"^--split {text}: expected three shares that sum to 100"):
        asked_data(split=text)


def test_what_is_not_typed_is_at_its_default() -> None:
    assert asked_data() == DataOptions()
    assert asked_training() == TrainingOptions()
    assert asked_training().augmentation == Augmentation()


def test_switches_turn_changes_on_and_off() -> None:
    asked = asked_training(flips=False, vertical_flips=True, colours=False).augmentation
    assert (asked.flip_horizontal, asked.flip_vertical, asked.quarter_turn) == (0, 0.5, 0)
    assert (asked.brightness, asked.contrast, asked.saturation, asked.hue_deg) == (0, 0, 0, 0)


def test_zero_minutes_are_no_bound() -> None:
    assert asked_training(max_minutes=0).max_minutes is None
    assert words(asked_training(max_minutes=0), TrainingOptions) == ["--max-minutes", "0"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"batch": 0}, "--batch 0: should be greater than or equal to 1"),
        ({"epochs": 0}, "--epochs 0: "),
        ({"learning_rate": 0.0}, "--learning-rate 0: "),
        ({"max_minutes": -3.0}, "--max-minutes -3: should be greater than or equal to 0"),
        ({"stop_at_map": 1.5}, "--stop-at-map 1.5: "),
        ({"patience": 0}, "--patience 0: "),
        ({"mosaic": 2.0}, "--mosaic 2: should be less than or equal to 1"),
        ({"rotate": -1.0}, "--rotate -1: "),
        ({"weights": "imagenet"}, "--weights imagenet needs a published --backbone"),
        ({"final": True, "patience": 3}, "--final trains on the validation split too"),
        ({"final": True, "stop_at_map": 0.5}, "--final trains on the validation split too"),
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_one_line_that_names_the_option(typed: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        asked_training(**typed)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["RBC=WBC,Platelets=P"], "--rename RBC=WBC,Platelets=P: one old=new each; give --rename several times"),
        (["RBC=a", "RBC=b"], "--rename RBC=a RBC=b: RBC cannot become both a and b"),
    ],
)
def test_a_rename_that_means_two_things_is_refused(typed: list[str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        asked_data(rename=typed)
    assert str(refused.value) == said


def test_a_side_that_is_no_multiple_of_32_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^--image-size 33: should be a multiple of 32$"):
        asked_data(image_size=33)


def test_two_wrong_options_are_two_lines() -> None:
    with pytest.raises(OptionError) as refused:
        asked_training(batch=0, mosaic=2.0)
    assert [line.split()[0] for line in str(refused.value).splitlines()] == ["--batch", "--mosaic"]


def test_only_what_is_not_usual_is_typed_again() -> None:
    assert words(JobSpec(), JobSpec) == []
    assert words(JobSpec(), JobSpec, always=("seed",)) == ["--seed", "0"]
    spec = JobSpec(split=(70, 20, 10), classes=("a", "b c"), rename={"e": "a", "f": "b"}, dry=True)
    assert words(spec, JobSpec) == [
        *("--split", "70/20/10", "--classes", "a,b c"),
        *("--rename", "e=a", "--rename", "f=b"),
    ]


def test_what_is_typed_again_asks_for_the_same() -> None:
    changes = Augmentation(
        flip_horizontal=0, quarter_turn=0.5, zoom=1e-05, contrast=0, brightness=0, saturation=0, hue_deg=0
    )
    training = TrainingOptions(learning_rate=0.000123456789, final=True, max_minutes=None, augmentation=changes)
    assert words(training, TrainingOptions) == [
        *("--max-minutes", "0", "--learning-rate", "0.000123456789", "--final"),
        *("--no-flips", "--quarter-turns", "--zoom", "1e-05", "--no-colours"),
    ]


def test_a_run_has_the_options_of_training_and_writes_them_as_0_1_0_did() -> None:
    assert [option.flags for option in options_of(RunSpec)] == [option.flags for option in options_of(TrainingOptions)]
    written = RunSpec(run="r", job="j", max_minutes=None).to_json()
    assert '"job":"j","kind":"train","learning_rate":null,"max_drop":1.0,"max_minutes":null' in written
