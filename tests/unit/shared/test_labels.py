"""Class names and ids."""

import pytest

from shared.labels import LabelMap, label_map


def test_ids_start_at_1_in_the_order_of_the_sorted_names() -> None:
    labels = label_map(["b", "a", "b"])
    assert labels.ids == {"a": 1, "b": 2}
    assert [labels.name_of(class_id) for class_id in (1, 2)] == ["a", "b"]


@pytest.mark.parametrize("class_id", [0, 3, -1])
def test_id_outside_the_map_is_no_key(class_id: int) -> None:
    with pytest.raises(KeyError):
        label_map("ab").name_of(class_id)


def test_label_map_is_written_as_the_object_detection_api_reads_it() -> None:
    assert LabelMap(("it's",)).to_pbtxt() == "item {\n  id: 1\n  name: 'it\\'s'\n}\n"


def test_labels_txt_has_one_name_a_line_and_no_background() -> None:
    assert LabelMap(("a", "b")).to_labels_txt() == "a\nb\n"
