"""Names that look like typing mistakes, names that an option has and no file, and what is proposed about them."""

from typing import Any

import pytest

from producer.dataset.class_names import name_findings, proposed_renames, require_known_names
from shared.errors import OptionError
from shared.specs.data import JobSpec


def found(counts: dict[str, int]) -> dict[str, tuple[str, str]]:
    return {finding.kind: (finding.found, finding.done) for finding in name_findings(counts)}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("quen", "queen"),
        ("qeuen", "queen"),
        ("Quen", "queen"),
        ("queenn", "queen"),
        ("motorcicle", "motorcycle"),
        ("motorcicel", "motorcycle"),
        ("tafel", "tafeln"),
    ],
)
def test_a_rare_name_a_mistake_apart_from_a_frequent_one_is_asked_about(name: str, meant: str) -> None:
    told, done = found({name: 2, meant: 40})["class_typo"]
    assert told == f"{name} (2), did you mean {meant} (40)?"
    assert f"--rename {name}={meant}" in done
    assert proposed_renames({name: 2, meant: 40}) == {name: meant}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cat", "car"),  # three letters: too many words are one apart
        ("class1", "class2"),  # digits tell classes apart
        ("horse", "house dog"),
        ("nine", "ten"),
        ("queen", "king"),
    ],
)
def test_names_that_are_words_of_their_own_are_left_alone(first: str, second: str) -> None:
    assert found({first: 1, second: 40}) == {}


def test_two_frequent_names_are_two_classes_however_alike() -> None:
    assert found({"plate": 30, "place": 40}) == {}
    assert found({"plate": 8, "place": 40})["class_typo"][0].startswith("plate (8)")


def test_names_that_differ_in_case_are_joined_under_the_most_frequent() -> None:
    counts = {"Cat": 3, "cat": 20, "CAT": 1, "dog": 5}
    told, done = found(counts)["class_case"]
    assert told == "class names differ only in case: 'CAT', 'Cat', 'cat'"
    assert proposed_renames(counts) == {"CAT": "cat", "Cat": "cat"}
    assert "--rename CAT=cat --rename Cat=cat" in done


def test_names_that_differ_in_what_is_between_their_words_are_joined() -> None:
    counts = {"traffic light": 40, "Traffic_Light": 60, "traffic-light": 50, "rac\u200bcoon": 9, "raccoon": 8}
    told, done = found(counts)["class_case"]
    assert told == (
        "class names differ only in case, spaces, hyphens, underscores or invisible characters: "
        "'raccoon', 'rac\\u200bcoon'; 'Traffic_Light', 'traffic light', 'traffic-light'"
    )
    assert proposed_renames(counts) == {
        "raccoon": "rac\u200bcoon",
        "traffic light": "Traffic_Light",
        "traffic-light": "Traffic_Light",
    }
    assert "--rename traffic-light=Traffic_Light" in done
    rare = found({"traffic light": 40, "traffic_light": 2})
    assert rare.keys() == {"class_typo"}


@pytest.mark.parametrize("names", ["A, A-", "type 1-2, type 12", "1 0, 10", "A B, AB", "class_1, class1", "c++, c"])
def test_what_is_beside_a_digit_or_a_sign_or_between_few_letters_tells_classes_apart(names: str) -> None:
    assert found(dict.fromkeys(names.split(", "), 20)) == {}


def test_a_mistake_in_another_case_leads_to_the_name_that_is_meant() -> None:
    assert proposed_renames({"Quen": 1, "quen": 2, "queen": 50}) == {"Quen": "queen", "quen": "queen"}


def test_the_likeliest_of_several_names_is_meant() -> None:
    assert proposed_renames({"plite": 1, "plate": 30, "elite": 60}) == {"plite": "elite"}


def test_names_with_blanks_and_quotes_are_proposed_so_that_they_can_be_copied() -> None:
    _, done = found({"fire hydrent": 1, "fire hydrant": 30})["class_typo"]
    assert "'fire hydrent=fire hydrant'" in done


@pytest.mark.parametrize("count", [0, 1])
def test_one_class_or_none_needs_no_finding(count: int) -> None:
    assert found(dict([("cat", 5)][:count])) == {}


def refusal(written: dict[str, int], **options: object) -> list[str]:
    with pytest.raises(OptionError) as caught:
        require_known_names(JobSpec.model_validate(options), written)
    return str(caught.value).splitlines()


def test_every_unknown_name_has_its_line() -> None:
    lines = refusal({"queen": 3, "king": 2}, classes=("qeen", "king"), ignore_classes=("zebra",), rename={"a": "b"})
    assert lines == [
        "--rename a=b: no object is called 'a'; there are 'queen' (3), 'king' (2)",
        "--classes qeen: no object is called 'qeen'; did you mean 'queen' (3)?",
        "--ignore-classes zebra: no object is called 'zebra'; there are 'queen' (3), 'king' (2)",
    ]


def test_a_name_with_an_equals_sign_is_told_as_it_is_typed() -> None:
    (line,) = refusal({"a=b": 3, "king": 2}, rename={"a": "b=c"})
    assert line.endswith(r"; 'a=b' is typed `--rename 'a\=b=NEW'`")
    (finding,) = name_findings({"size=big": 50, "Size=big": 1})
    assert r"`--rename 'Size\=big=size=big'`" in finding.done


def test_a_name_that_others_are_renamed_to_is_no_proposal_but_is_listed() -> None:
    lines = refusal({"raccoon": 200}, rename={"Raccoon": "raccoon"})
    assert lines == ["--rename Raccoon=raccoon: no object is called 'Raccoon'; there are 'raccoon' (200)"]


def test_many_classes_are_not_all_listed() -> None:
    (line,) = refusal({f"thing {at}": 50 - at for at in range(30)}, classes=("zzz",))
    assert line.endswith("'thing 9' (41) and 20 more")


def test_two_classes_may_change_names_and_a_name_may_be_given_on() -> None:
    counts = {"queen": 3, "king": 2}
    for new in ("king", "jack"):
        require_known_names(JobSpec.model_validate({"rename": {"king": "queen", "queen": new}}), counts)
    (line,) = refusal(counts, rename={"king": "queen", "jack": "king"})
    assert line.startswith("--rename jack=king: no object is called 'jack'")


def test_names_after_a_rename_may_be_asked_for_and_both_may_be_ignored() -> None:
    spec: dict[str, Any] = {"rename": {"quen": "queen"}, "classes": ("queen",), "ignore_classes": ("quen", "queen")}
    require_known_names(JobSpec.model_validate(spec), {"quen": 1})
    (line,) = refusal({"quen": 1}, **{**spec, "ignore_classes": ("quen", "queen", "king")})
    assert "king" in line


@pytest.mark.parametrize("typed", ["v\u00e9lo", "ve\u0301lo"])
def test_an_option_names_a_class_however_its_accents_are_written(typed: str) -> None:
    asked = {"classes": [typed, "car"], "ignore_classes": [typed], "rename": {typed: "v\u00e9lo", "auto": "car"}}
    spec = JobSpec.model_validate(asked)
    require_known_names(spec, {"v\u00e9lo": 2, "auto": 1})
    assert (spec.classes, spec.ignore_classes) == (("v\u00e9lo", "car"), ("v\u00e9lo",))
    assert all("v\u00e9lo" in line for line in refusal({"auto": 1}, **asked))
