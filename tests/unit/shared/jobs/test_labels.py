"""Class names and ids."""

import pytest

from shared.jobs.labels import ClassChange, LabelMap, label_map, read_labels_txt


def test_ids_start_at_1_in_the_order_of_the_sorted_names() -> None:
    labels = label_map(["b", "a", "b"])
    assert labels.ids == {"a": 1, "b": 2}
    assert labels.names == ("a", "b")


def test_label_map_is_written_as_the_object_detection_api_reads_it() -> None:
    assert LabelMap(("it's",)).to_pbtxt() == "item {\n  id: 1\n  name: 'it\\'s'\n}\n"
    assert LabelMap(("a\\", "b")).to_pbtxt().splitlines()[2] == r"  name: 'a\\'"


def test_labels_txt_has_one_name_a_line_and_no_background() -> None:
    assert LabelMap(("a", "b")).to_labels_txt() == "a\nb\n"


def test_labels_txt_is_read_as_it_was_written_whatever_a_name_holds() -> None:
    names = ("a b", "c\u2028d", " e", "f\r")
    assert read_labels_txt(LabelMap(names).to_labels_txt().encode()) == names
    assert read_labels_txt(b"a\nb") == ("a", "b")


@pytest.mark.parametrize(
    ("content", "told"), [(b"a\n\nb\n", "an empty line"), (b"", "an empty line"), (b"a\nb\na\n", "a class twice")]
)
def test_labels_txt_that_gives_two_ids_or_none_to_a_class_is_refused(content: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_labels_txt(content)


def test_classes_of_an_older_version_are_found_however_their_accents_are_written() -> None:
    decomposed, composed = "ve\u0301lo", "v\u00e9lo"
    change = ClassChange.between([decomposed, "bus"], ["auto", composed])
    assert (change.kept, change.new, change.gone) == ([composed], ["auto"], ["bus"])
    assert LabelMap(("auto", decomposed)).by_class_name[composed] == 2
    assert LabelMap((composed, decomposed)).by_class_name[composed] == 1, "of two, the one that is spelled so"
