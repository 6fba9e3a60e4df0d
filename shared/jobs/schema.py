"""Names and types of a record's features: exactly the keys of the TF Object Detection API.

Source: `object_detection/core/standard_fields.py` (class TfExampleFields) of the TensorFlow Model Garden.
Every list feature is always present; a picture without objects has empty lists.
"""

from typing import Final, Literal

# The version of the bytes of a shard and of its annotations file; jobs share only shards of the same version. Raise it
# with every change after which the same pairs and options give other bytes: a reading rule, an encoder setting, a key,
# a library that rounds differently. `python -m tests.golden.regenerate` pins the bytes of each version.
SHARD_FORMAT: Final = 4

FeatureKind = Literal["bytes", "int64", "float"]

ENCODED: Final = "image/encoded"
FORMAT: Final = "image/format"
HEIGHT: Final = "image/height"
WIDTH: Final = "image/width"
FILENAME: Final = "image/filename"
SOURCE_ID: Final = "image/source_id"
SHA256: Final = "image/key/sha256"
XMIN: Final = "image/object/bbox/xmin"
XMAX: Final = "image/object/bbox/xmax"
YMIN: Final = "image/object/bbox/ymin"
YMAX: Final = "image/object/bbox/ymax"
CLASS_TEXT: Final = "image/object/class/text"
CLASS_LABEL: Final = "image/object/class/label"
DIFFICULT: Final = "image/object/difficult"
TRUNCATED: Final = "image/object/truncated"
IS_CROWD: Final = "image/object/is_crowd"
VIEW: Final = "image/object/view"
AREA: Final = "image/object/area"

# One value per record.
SCALARS: Final[dict[str, FeatureKind]] = {
    ENCODED: "bytes",
    FORMAT: "bytes",
    HEIGHT: "int64",
    WIDTH: "int64",
    FILENAME: "bytes",
    SOURCE_ID: "bytes",
    SHA256: "bytes",
}

# One value per object; all these lists of a record have the same length.
LISTS: Final[dict[str, FeatureKind]] = {
    XMIN: "float",
    XMAX: "float",
    YMIN: "float",
    YMAX: "float",
    CLASS_TEXT: "bytes",
    CLASS_LABEL: "int64",
    DIFFICULT: "int64",
    TRUNCATED: "int64",
    IS_CROWD: "int64",
    VIEW: "bytes",
    AREA: "float",
}

FEATURES: Final[dict[str, FeatureKind]] = SCALARS | LISTS
