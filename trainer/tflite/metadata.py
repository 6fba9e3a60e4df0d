"""TFLite metadata: what a client must know about a model, as a flatbuffer inside the file and files zipped to its end.

Format: "TensorFlow Lite Model Metadata" schema 1.5.0 (metadata_schema.fbs, namespace tflite, file identifier M001),
https://github.com/google-ai-edge/mediapipe/blob/master/mediapipe/tasks/metadata/metadata_schema.fbs. Slot numbers
below follow the order of the fields in that schema; a union takes two slots, its type first.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shared.model.description import (
    CALIBRATION_FILE,
    DESCRIPTION_FILE,
    LABELS_FILE,
    PIXEL_MEAN,
    PIXEL_STD,
    ModelDescription,
    description_archive,
    read_description,
)
from trainer.tflite.flatbuffer import add_buffer, serialize
from trainer.tflite.output_graph import finish_input, finish_outputs
from trainer.tflite.raw_graph import cut_suppression

# The names that MediaPipe Tasks looks for (object_detector_graph.cc), in the order of the custom operator's outputs.
OUTPUT_NAMES: Final = ("location", "category", "score", "number of detections")

# MediaPipe refuses a model whose metadata asks for a newer parser; 1.5.0 is the first with everything that we write.
_MIN_PARSER: Final = "1.5.0"
_TENSOR_VALUE_LABELS: Final = 3
_TENSOR_AXIS_SCORE_CALIBRATION: Final = 4
_DESCRIPTIONS: Final = 1
_METADATA: Final = b"TFLITE_METADATA"


def with_metadata(model: bytes, description: ModelDescription) -> bytes:
    """A converted `.tflite` with finished input and outputs, the metadata flatbuffer inside and the files at its end.

    Outputs are those of the post-processing operator in its order or, if the description has a decoding, of the heads.

    Raises:
        ExportError: The model does not have exactly one post-processing operator in one subgraph.
    """
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    if description.decoding is None:
        finish_outputs(tree)
        finish_input(tree)
    else:
        cut_suppression(tree)
    entry = schema.MetadataT()
    entry.name, entry.buffer = _METADATA, add_buffer(tree, metadata_flatbuffer(description))
    tree.metadata = [*(tree.metadata or []), entry]
    content = serialize(tree)
    return content + description_archive(len(content), description)


def with_best_score(model: bytes, score: float) -> bytes:
    """A `.tflite` from `with_metadata` with its best threshold, the least score of detections worth showing."""
    description = replace(read_description(model), best_score=score)
    tree = schema.ModelT.InitFromPackedBuf(model, 0)
    at = next(entry.buffer for entry in tree.metadata if entry.name == _METADATA)
    tree.buffers[at].data = np.frombuffer(metadata_flatbuffer(description), np.uint8)
    content = serialize(tree)
    return content + description_archive(len(content), description)


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A number in a table's slot; `kind` is the builder's name for its type."""

    kind: Literal["Int8", "Int32", "Uint32", "Float32"]
    number: float


# A table as {slot: field}; absent slots keep the schema's default.
_Table = dict[int, Any]


def metadata_flatbuffer(description: ModelDescription) -> bytes:
    """The schema's `ModelMetadata` for a detector with four outputs, or with the two outputs of its heads."""
    outputs = _output_tensors(description.best_score) if description.decoding is None else _raw_output_tensors()
    root: _Table = {
        0: description.name,
        1: description.sentence(),
        2: description.version,
        3: [{0: "detector", 2: [_input_tensor(description)], 3: outputs}],
        4: "voc2tflite",
        5: description.licence,
        6: [_file(DESCRIPTION_FILE, "What predict needs to know.", _DESCRIPTIONS)],
        7: _MIN_PARSER,
    }
    builder = flatbuffers.Builder(4096)
    builder.Finish(_write(builder, root), b"M001")
    return bytes(builder.Output())


def _input_tensor(description: ModelDescription) -> _Table:
    size = {0: _Scalar("Uint32", description.image_size), 1: _Scalar("Uint32", description.image_size)}
    rgb, image_properties, normalization = _Scalar("Int8", 1), _Scalar("Int8", 2), _Scalar("Int8", 1)
    return {
        0: "image",
        1: f"RGB picture, {description.resize} to {description.image_size} px",
        3: {0: image_properties, 1: {0: rgb, 1: size}},
        4: [{0: normalization, 1: {0: [PIXEL_MEAN], 1: [PIXEL_STD]}}],
        5: {0: [1.0], 1: [-1.0]},
    }


def _output_tensors(best_score: float | None) -> list[_Table]:
    """The outputs' tables, in the order of `OUTPUT_NAMES`."""
    inverse_logistic, score_calibration, score_thresholding = (_Scalar("Int8", kind) for kind in (2, 2, 3))
    units: list[_Table] = [{0: score_calibration, 1: {0: inverse_logistic, 1: _Scalar("Float32", 0.0)}}]
    if best_score is not None:  # for clients that read it; MediaPipe 1.2 does not
        units.append({0: score_thresholding, 1: {0: _Scalar("Float32", best_score)}})
    bounding_box, boundaries, ratio = _Scalar("Int8", 3), _Scalar("Int8", 1), _Scalar("Int8", 0)
    feature = _Scalar("Int8", 1)
    each = {0: _Scalar("Int32", 2), 1: _Scalar("Int32", 2)}
    values = {0: feature, 1: {}, 2: each}
    # (left, top, right, bottom) are elements 1, 0, 3, 2 of the operator's (ymin, xmin, ymax, xmax).
    box = {0: bounding_box, 1: {0: np.array([1, 0, 3, 2], np.uint32), 1: boundaries, 2: ratio}, 2: each}
    location, category, score, count = OUTPUT_NAMES
    return [
        {0: location, 1: "Boxes (ymin, xmin, ymax, xmax) in [0, 1].", 3: box},
        {0: category, 1: "Class, from 0.", 3: values, 6: [_file(LABELS_FILE, "Class names.", _TENSOR_VALUE_LABELS)]},
        {
            0: score,
            1: "Score in [0, 1].",
            3: values,
            4: units,
            6: [_file(CALIBRATION_FILE, "Identity.", _TENSOR_AXIS_SCORE_CALIBRATION)],
        },
        {0: count, 1: "How many of the boxes count.", 3: {0: feature, 1: {}}},
    ]


def _raw_output_tensors() -> list[_Table]:
    """The outputs' tables, in the order of `RAW_OUTPUTS`; only words, because no client decodes them by itself."""
    feature = {0: _Scalar("Int8", 1), 1: {}}
    how = f"Decoded as {DESCRIPTION_FILE} says."
    labels = [_file(LABELS_FILE, "Class names.", _TENSOR_VALUE_LABELS)]
    return [
        {0: "boxes", 1: f"(ty, tx, th, tw) for each cell. {how}", 3: feature},
        {0: "scores", 1: f"A lifted logit for each cell and class. {how}", 3: feature, 6: labels},
    ]


def _file(name: str, description: str, kind: int) -> _Table:
    return {0: name, 1: description, 2: _Scalar("Int8", kind)}


def _write(builder: flatbuffers.Builder, field: Any) -> int:
    """Write a string, vector or table after everything that it points to; returns its offset."""
    match field:
        case str():
            return int(builder.CreateString(field))
        case np.ndarray():
            return int(builder.CreateNumpyVector(field))
        case [float(), *_]:
            return int(builder.CreateNumpyVector(np.asarray(field, np.float32)))
        case list():
            return _write_offsets(builder, [_write(builder, element) for element in field])
        case _:
            return _write_table(builder, field)


def _write_offsets(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _write_table(builder: flatbuffers.Builder, table: _Table) -> int:
    offsets = {slot: _write(builder, field) for slot, field in table.items() if not isinstance(field, _Scalar)}
    builder.StartObject(max(table, default=-1) + 1)
    for slot, field in table.items():
        if isinstance(field, _Scalar):
            number = field.number if field.kind == "Float32" else int(field.number)
            getattr(builder, f"Prepend{field.kind}Slot")(slot, number, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[slot], 0)
    return int(builder.EndObject())
