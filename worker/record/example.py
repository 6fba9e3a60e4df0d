"""An encoded picture and its objects -> a serialized `tf.train.Example`, and back.

The message types are built at run time in their own descriptor pool: no generated code, and no clash if TensorFlow
registers the same names in the same process. Field numbers: tensorflow/core/example/example.proto and feature.proto.
Keys: `shared/jobs/schema.py`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from shared.annotation.voc import Box
from shared.errors import ShardError
from shared.jobs import schema
from shared.jobs.job import PathPair
from shared.jobs.schema import FeatureKind

_Field = descriptor_pb2.FieldDescriptorProto
_KIND_FIELDS: Final[dict[FeatureKind, tuple[str, int, int]]] = {
    "bytes": ("BytesList", 1, _Field.TYPE_BYTES),
    "float": ("FloatList", 2, _Field.TYPE_FLOAT),
    "int64": ("Int64List", 3, _Field.TYPE_INT64),
}

Value = int | float | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a record; `box` is (xmin, ymin, xmax, ymax) in pixels of the stored picture, inside it."""

    class_id: int
    name: str
    box: Box
    difficult: bool
    truncated: bool
    is_crowd: bool
    view: str

    @property
    def area(self) -> float:
        """The area of the box in square pixels of the stored picture."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


def fractions(box: Box, size: int) -> tuple[float, float, float, float]:
    """`box` in pixels -> fractions of the side `size`, in [0, 1], rounded to float32, in the same order."""
    xmin, ymin, xmax, ymax = (float(np.float32(min(max(corner / size, 0.0), 1.0))) for corner in box)
    return xmin, ymin, xmax, ymax


def serialize_example(encoded: bytes, size: int, pair: PathPair, objects: Sequence[StoredObject]) -> bytes:
    """The record of a pair, with every key of the schema; the lists are empty if its picture shows no object.

    `encoded` is the picture, an upright JPEG of `size` pixels squared. The same values give the same bytes: protobuf
    sorts the map's keys.
    """
    boxes = [fractions(stored.box, size) for stored in objects]
    values: dict[str, list[Any]] = {
        schema.ENCODED: [encoded],
        schema.FORMAT: [b"jpeg"],
        schema.HEIGHT: [size],
        schema.WIDTH: [size],
        schema.FILENAME: [pair.image.encode()],
        schema.SOURCE_ID: [str(pair.source_id).encode()],
        schema.SHA256: [hashlib.sha256(encoded).hexdigest().encode()],
        schema.XMIN: [box[0] for box in boxes],
        schema.YMIN: [box[1] for box in boxes],
        schema.XMAX: [box[2] for box in boxes],
        schema.YMAX: [box[3] for box in boxes],
        schema.CLASS_TEXT: [stored.name.encode() for stored in objects],
        schema.CLASS_LABEL: [stored.class_id for stored in objects],
        schema.DIFFICULT: [int(stored.difficult) for stored in objects],
        schema.TRUNCATED: [int(stored.truncated) for stored in objects],
        schema.IS_CROWD: [int(stored.is_crowd) for stored in objects],
        schema.VIEW: [stored.view.encode() for stored in objects],
        schema.AREA: [stored.area for stored in objects],
    }
    example = _Example()
    features = example.features.feature
    for key, kind in schema.FEATURES.items():
        getattr(features[key], f"{kind}_list").value.extend(values[key])
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def parse_example(record: bytes) -> dict[str, list[Value]]:
    """The features of a serialized Example, by key.

    Raises:
        ShardError: It is not an Example, lacks a key of the schema, or has a key with another type.
    """
    example = _Example()
    try:
        example.ParseFromString(record)
    except DecodeError as error:
        raise ShardError(f"not a tf.train.Example: {error}") from error
    features = example.features.feature
    for key, kind in schema.FEATURES.items():
        found = features[key].WhichOneof("kind") if key in features else None
        if found != f"{kind}_list":
            raise ShardError(f"record without {key} as {kind} (found {found})")
    return {key: list(getattr(features[key], features[key].WhichOneof("kind")).value) for key in sorted(features)}


def _build_example_class() -> Any:
    """The message class `tensorflow.Example` in a private pool."""
    file = descriptor_pb2.FileDescriptorProto(name="voc2tflite/example.proto", package="tensorflow", syntax="proto3")
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for kind, (list_name, number, value_type) in _KIND_FIELDS.items():
        values = file.message_type.add(name=list_name)
        values.field.add(name="value", number=1, type=value_type, label=_Field.LABEL_REPEATED)
        _add_message(feature, f"{kind}_list", number, list_name, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _add_message(entry, "value", 2, "Feature")
    _add_message(features, "feature", 1, "Features.FeatureEntry", label=_Field.LABEL_REPEATED)
    _add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _add_message(message: Any, name: str, number: int, type_name: str, **options: Any) -> None:
    """Give `message` a field that holds another message of this file."""
    options = {"label": _Field.LABEL_OPTIONAL, "type_name": f".tensorflow.{type_name}", **options}
    message.field.add(name=name, number=number, type=_Field.TYPE_MESSAGE, **options)


_Example: Final = _build_example_class()
