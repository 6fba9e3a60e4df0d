"""The metadata that clients read, looked up field by field in the flatbuffer as the public schema numbers them."""

import io
import zipfile
from dataclasses import replace

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table

from shared.errors import ExportError
from shared.model.description import ModelDescription, description_archive, read_description
from tests.unit.trainer.exported import LABELS, SIZE, Exported
from trainer.inference.detector import Detector
from trainer.tflite.convert import FORMS
from trainer.tflite.metadata import OUTPUT_NAMES, metadata_flatbuffer, with_best_score, with_metadata


def root(content: bytes) -> Table:
    return Table(content, encode.Get(packer.uoffset, content, 0))


def table(parent: Table, slot: int) -> Table:
    return Table(parent.Bytes, parent.Indirect(parent.Pos + parent.Offset(4 + 2 * slot)))


def text(parent: Table, slot: int) -> str:
    return bytes(parent.String(parent.Pos + parent.Offset(4 + 2 * slot))).decode()


def number(parent: Table, slot: int, kind: object) -> float:
    offset = parent.Offset(4 + 2 * slot)
    return parent.Get(kind, parent.Pos + offset) if offset else 0


def tables(parent: Table, slot: int) -> list[Table]:
    offset = parent.Offset(4 + 2 * slot)
    start = parent.Vector(offset)
    return [Table(parent.Bytes, parent.Indirect(start + 4 * index)) for index in range(parent.VectorLen(offset))]


def numbers(parent: Table, slot: int, kind: object) -> list[float]:
    return list(parent.GetVectorAsNumpy(kind, parent.Offset(4 + 2 * slot)))


@pytest.fixture(scope="module")
def model_metadata(exported: Exported) -> Table:
    tree = schema.ModelT.InitFromPackedBuf(exported.forms["int8"], 0)
    buffer = next(entry.buffer for entry in tree.metadata if entry.name == b"TFLITE_METADATA")
    content = bytes(tree.buffers[buffer].data)
    assert content[4:8] == b"M001"
    return root(content)


def test_model_says_name_version_licence_and_digest(model_metadata: Table) -> None:
    assert text(model_metadata, 0) == "tiny"
    assert "ab" * 32 in text(model_metadata, 1)
    assert "letterbox" in text(tables(tables(model_metadata, 3)[0], 2)[0], 1)
    assert text(model_metadata, 2) == "1.2.3"
    assert text(model_metadata, 5) == "Apache-2.0"


def test_input_has_size_and_normalization(model_metadata: Table) -> None:
    (image,) = tables(tables(model_metadata, 3)[0], 2)
    properties = table(table(image, 3), 1)
    assert number(properties, 0, number_types.Int8Flags) == 1  # RGB
    assert number(table(properties, 1), 0, number_types.Uint32Flags) == SIZE
    options = table(tables(image, 4)[0], 1)
    assert numbers(options, 0, number_types.Float32Flags) == numbers(options, 1, number_types.Float32Flags) == [127.5]


def test_outputs_are_named_in_the_ops_order(model_metadata: Table) -> None:
    outputs = tables(tables(model_metadata, 3)[0], 3)
    assert tuple(text(output, 0) for output in outputs) == OUTPUT_NAMES


def test_boxes_are_boundaries_as_ratio_in_the_ops_order(model_metadata: Table) -> None:
    properties = table(table(tables(tables(model_metadata, 3)[0], 3)[0], 3), 1)
    assert numbers(properties, 0, number_types.Uint32Flags) == [1, 0, 3, 2]
    assert number(properties, 1, number_types.Int8Flags) == 1
    assert number(properties, 2, number_types.Int8Flags) == 0


def test_labels_belong_to_the_category_tensor(model_metadata: Table) -> None:
    (labels,) = tables(tables(tables(model_metadata, 3)[0], 3)[1], 6)
    assert text(labels, 0) == "labels.txt"
    assert number(labels, 2, number_types.Int8Flags) == 3


def test_the_input_is_a_picture_that_is_normalized_and_says_its_ends(model_metadata: Table) -> None:
    (image,) = tables(tables(model_metadata, 3)[0], 2)
    content = table(image, 3)
    assert number(content, 0, number_types.Int8Flags) == 2  # ImageProperties
    size = table(table(content, 1), 1)
    assert [number(size, slot, number_types.Uint32Flags) for slot in (0, 1)] == [SIZE, SIZE]
    (unit,) = tables(image, 4)
    assert number(unit, 0, number_types.Int8Flags) == 1  # NormalizationOptions
    stats = table(image, 5)
    most, least = (numbers(stats, slot, number_types.Float32Flags) for slot in (0, 1))
    assert (most, least) == ([1.0], [-1.0])


def test_outputs_say_what_they_hold_and_over_which_axis(model_metadata: Table) -> None:
    outputs = tables(tables(model_metadata, 3)[0], 3)
    contents = [table(output, 3) for output in outputs]
    # BoundingBoxProperties, FeatureProperties
    assert [number(content, 0, number_types.Int8Flags) for content in contents] == [3, 1, 1, 1]
    for content in contents[:3]:  # along the second axis
        ends = [number(table(content, 2), slot, number_types.Int32Flags) for slot in (0, 1)]
        assert ends == [2, 2]
    assert not contents[3].Offset(4 + 2 * 2), "the count is one number"


def test_scores_are_calibrated_by_a_file_that_leaves_them_as_they_are(model_metadata: Table) -> None:
    score = tables(tables(model_metadata, 3)[0], 3)[2]
    (unit,) = tables(score, 4)  # no threshold before one is measured
    assert number(unit, 0, number_types.Int8Flags) == 2  # ScoreCalibrationOptions
    assert number(table(unit, 1), 0, number_types.Int8Flags) == 2  # INVERSE_LOGISTIC, of which the file is the inverse
    (file,) = tables(score, 6)
    assert (text(file, 0), number(file, 2, number_types.Int8Flags)) == ("score_calibration.txt", 4)


def test_the_model_asks_for_the_parser_of_its_schema(model_metadata: Table) -> None:
    assert text(model_metadata, 7) == "1.5.0"
    (file,) = tables(model_metadata, 6)
    assert (text(file, 0), number(file, 2, number_types.Int8Flags)) == ("voc2tflite.json", 1)


def test_a_file_without_suppression_names_its_two_outputs(exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.raw["int8"], 0)
    buffer = next(entry.buffer for entry in tree.metadata if entry.name == b"TFLITE_METADATA")
    boxes, scores = tables(tables(root(bytes(tree.buffers[buffer].data)), 3)[0], 3)
    assert (text(boxes, 0), text(scores, 0)) == ("boxes", "scores")
    for output in (boxes, scores):
        assert number(table(output, 3), 0, number_types.Int8Flags) == 1
    (labels,) = tables(scores, 6)
    assert (text(labels, 0), number(labels, 2, number_types.Int8Flags)) == ("labels.txt", 3)


def test_a_best_threshold_of_zero_is_in_the_file_too(exported: Exported) -> None:
    content = with_best_score(exported.forms["float32"], 0.0)
    assert read_description(content).best_score == 0
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    buffer = next(entry.buffer for entry in tree.metadata if entry.name == b"TFLITE_METADATA")
    score = tables(tables(root(bytes(tree.buffers[buffer].data)), 3)[0], 3)[2]
    assert len(tables(score, 4)) == 2


def test_archive_holds_labels_and_calibration(exported: Exported) -> None:
    with zipfile.ZipFile(io.BytesIO(exported.forms["float32"])) as archive:
        assert archive.read("labels.txt").decode().splitlines() == list(LABELS)
        assert archive.read("score_calibration.txt").decode().splitlines() == ["1.0,1.0,0.0"] * len(LABELS)
        assert archive.testzip() is None


def test_description_is_read_back(exported: Exported) -> None:
    for form, content in exported.forms.items():
        assert read_description(content) == replace(exported.model.description, form=form)


def test_labels_end_at_line_feeds_only(exported: Exported) -> None:
    # splitlines() also ends them at each of these.
    description = replace(exported.model.description, labels=("a\u2028b", "c\x85d", "e\x0cf"))
    model = b"\0\0\0\0TFL3"
    assert read_description(model + description_archive(len(model), description)) == description


def test_file_without_description_is_refused() -> None:
    with pytest.raises(ExportError, match="no voc2tflite description"):
        read_description(b"TFL3 and nothing else")


def test_weights_stay_aligned_to_16_bytes(exported: Exported) -> None:
    content = exported.forms["float32"]
    model = schema.Model.GetRootAs(content, 0)
    for index in range(model.BuffersLength()):
        vector = model.Buffers(index)._tab
        offset = vector.Offset(4)
        assert not offset or vector.Vector(offset) % 16 == 0


def test_model_without_the_op_is_refused(exported: Exported) -> None:
    tree = schema.ModelT.InitFromPackedBuf(exported.forms["float32"], 0)
    tree.subgraphs[0].operators = tree.subgraphs[0].operators[:5]
    builder = flatbuffers.Builder(1024)
    builder.Finish(tree.Pack(builder), b"TFL3")
    with pytest.raises(ExportError, match="holds 0 TFLite_Detection_PostProcess"):
        with_metadata(bytes(builder.Output()), exported.model.description)


def test_flatbuffer_is_the_same_bytes_each_time() -> None:
    description = ModelDescription(
        name="n",
        version="1",
        licence="l",
        labels=("a",),
        image_size=32,
        resize="stretch",
        data_digest="d",
        form="int8",
    )
    assert metadata_flatbuffer(description) == metadata_flatbuffer(description)
    assert description.sentence().startswith("Object detector of 1 class, trained by")
    assert np.frombuffer(metadata_flatbuffer(description), np.uint8).size < 2048


@pytest.mark.parametrize("form", FORMS)
def test_best_threshold_is_in_file_and_metadata_and_nothing_else_changes(exported: Exported, form: str) -> None:
    before = exported.forms[form]
    content = with_best_score(before, 0.23)
    stated = read_description(content)
    assert stated == replace(read_description(before), best_score=0.23)
    assert (stated.threshold, read_description(before).threshold) == (0.23, 0.4)
    tree = schema.ModelT.InitFromPackedBuf(content, 0)
    (buffer,) = (entry.buffer for entry in tree.metadata if entry.name == b"TFLITE_METADATA")
    metadata = root(bytes(tree.buffers[buffer].data))
    assert "scores of at least 0.23" in text(metadata, 1)
    score = tables(tables(metadata, 3)[0], 3)[2]
    calibration, threshold = tables(score, 4)
    assert number(calibration, 0, number_types.Int8Flags) == 2
    assert number(threshold, 0, number_types.Int8Flags) == 3  # ScoreThresholdingOptions
    assert number(table(threshold, 1), 0, number_types.Float32Flags) == pytest.approx(0.23)
    picture = exported.pictures[0].rgb
    ours, theirs = (Detector(model).detect_stored(picture) for model in (content, before))
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    assert with_best_score(content, 0.23) == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert min(entry.header_offset for entry in archive.infolist()) == content.index(b"PK\x03\x04")
