"""Class names and ids."""

from shared.jobs.labels import LabelMap, label_map, read_labels_txt


def test_ids_start_at_1_in_the_order_of_the_sorted_names() -> None:
    labels = label_map(["b", "a", "b"])
    assert labels.ids == {"a": 1, "b": 2}
    assert labels.names == ("a", "b")


def test_label_map_is_written_as_the_object_detection_api_reads_it() -> None:
    assert LabelMap(("it's",)).to_pbtxt() == "item {\n  id: 1\n  name: 'it\\'s'\n}\n"


def test_labels_txt_has_one_name_a_line_and_no_background() -> None:
    assert LabelMap(("a", "b")).to_labels_txt() == "a\nb\n"


def test_a_list_of_an_older_version_names_the_classes_as_they_are_read_now() -> None:
    decomposed = "ve\u0301lo"
    assert read_labels_txt(f"{decomposed}\nauto\n".encode()) == ("v\u00e9lo", "auto")
    assert read_labels_txt(f"{decomposed}\nv\u00e9lo\n".encode()) == (decomposed, "v\u00e9lo"), "two classes stay two"
