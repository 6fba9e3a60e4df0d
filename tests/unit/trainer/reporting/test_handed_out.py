"""The list of a run's files in the model card."""

from trainer.reporting.handed_out import files_of_run
from trainer.tflite.convert import forms_of


def test_models_come_first_and_a_folder_has_one_line() -> None:
    names = ["plots/worst.jpg", "saved_model/saved_model.pb", "saved_model/variables/v.index", "plots/best.jpg"]
    listed = files_of_run([*names, "labels.txt", "model_int8.tflite", "report.html"])
    assert list(listed) == ["model_int8.tflite", "saved_model/", "labels.txt", "report.html", "plots/"]


def test_every_form_says_where_suppression_is() -> None:
    listed = files_of_run(f"model_{form}.tflite" for form in forms_of("both"))
    assert len(listed) == 8
    for name, what in listed.items():
        assert ("suppression outside" in what) == name.endswith("_raw.tflite"), name
        assert ("suppression inside" in what) != name.endswith("_raw.tflite"), name


def test_detections_of_any_split_are_known_and_what_is_unknown_is_listed_last() -> None:
    listed = files_of_run(["zebra.bin", "detections_val.json", "model.keras"])
    assert list(listed) == ["model.keras", "detections_val.json", "zebra.bin"]
    assert "`compare`" in listed["detections_val.json"]
    assert listed["zebra.bin"] == ""


def test_keras_files_say_what_to_import_first() -> None:
    listed = files_of_run(["model.keras", "model_qat.keras"])
    assert "`import trainer.network.detector`" in listed["model.keras"]
    assert "`import trainer.training.qat`" in listed["model_qat.keras"]
