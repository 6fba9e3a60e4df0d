"""What an exported model says about itself: labels, picture size and so on, zipped to the end of the `.tflite`.

Format: the associated files of "TensorFlow Lite Model Metadata": a zip archive after the flatbuffer, which zip readers
find from the file's end and TFLite ignores. Needs only the standard library, so that `predict` runs anywhere.
"""

import io
import json
import zipfile
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, get_args

from shared.model.file import ModelFile, quoted
from shared.placement import PADDING_GRAY, Resize
from shared.text import counted

LABELS_FILE: Final = "labels.txt"
CALIBRATION_FILE: Final = "score_calibration.txt"
DESCRIPTION_FILE: Final = "voc2tflite.json"

# A uint8 input has this normalisation in its scale, 1 / PIXEL_STD; the file's metadata names both values.
PIXEL_MEAN: Final = 127.5
PIXEL_STD: Final = 127.5

# How many bytes of each file are read. Labels: 10,000 names of 25 letters; a large data set has 1,200 classes. The
# description: a hundred times what is written.
_LIMITS: Final = {LABELS_FILE: 256 * 2**10, DESCRIPTION_FILE: 64 * 2**10}

# The sizes that a job may ask for and that the network accepts: its coarsest level has a cell per 32 px.
_LEAST_SIZE_PX: Final = 32
_MOST_SIZE_PX: Final = 4096
_MOST_DIGITS: Final = 12

# The type of each field of the description, and the fields that may be missing.
_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("name", "version", "licence", "resize", "data_digest", "form"), str),
    "image_size": int,
    "best_score": float,
    "decoding": dict,
}
_OPTIONAL: Final = frozenset({"form", "best_score", "decoding"})

_BOX_FORM: Final = "ty tx th tw"
_SCORE_FORM: Final = "lifted logits"
# The types and ranges of a decoding's numbers: within these ranges no box overflows.
_DECODING_RANGES: Final[dict[str, tuple[type, float, float]]] = {
    "strides": (int, 1, 256),
    **dict.fromkeys(("prior_strides", "center_scale", "size_scale"), (float, 0.1, 100.0)),
    "score_lift": (float, -20.0, 20.0),
    **dict.fromkeys(("least_score", "nms_iou"), (float, 0.0001, 0.9999)),
    "most_detections": (int, 1, 1000),
}

# The least score of a detection that is shown if a file does not name its best threshold, as those of 0.2.0 do not.
_USUAL_SCORE: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How the outputs of a file without suppression become detections (`trainer/inference/decode.py`).

    Output `boxes` has four numbers per cell, (ty, tx, th, tw): the box's centre is the cell's centre moved by
    t / `center_scale` priors, and its sides are exp(t / `size_scale`) priors. A prior is a square whose side is
    `prior_strides` strides of the cell's level.
    Cells run over the levels of `strides` (px), each row by row. Output `scores` has for each class a logit raised by
    `score_lift`. Boxes below `least_score` are left out, as are those that overlap a better one, of any class, with an
    IoU above `nms_iou`; the best `most_detections` are kept.
    """

    strides: tuple[int, ...]
    prior_strides: float
    center_scale: float
    size_scale: float
    score_lift: float
    least_score: float
    nms_iou: float
    most_detections: int
    boxes: str = _BOX_FORM
    scores: str = _SCORE_FORM

    def cells(self, image_size: int) -> int:
        """How many boxes a picture of `image_size` px has."""
        return sum((image_size // stride) ** 2 for stride in self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What an exported file says about itself; every client can read it, and `predict` follows it.

    `best_score` is the threshold with the best F1 on the validation pictures, in [0, 1]; None if it was not measured.
    `decoding` is None if suppression is inside the file.
    """

    name: str
    version: str
    licence: str
    labels: tuple[str, ...]
    image_size: int
    resize: Resize
    data_digest: str
    form: str = ""
    best_score: float | None = None
    decoding: Decoding | None = None

    @property
    def threshold(self) -> float:
        """The least score of a detection worth showing, unless a person chooses another."""
        return _USUAL_SCORE if self.best_score is None else self.best_score

    def sentence(self) -> str:
        """The description for people."""
        fitted = (
            "stretched to the square" if self.resize == "stretch" else f"scaled to fit, centred on gray {PADDING_GRAY}"
        )
        outside = "" if self.decoding is None else f" Boxes are to be decoded as {DESCRIPTION_FILE} says."
        best = "" if self.best_score is None else f" Best threshold: scores of at least {self.best_score:.2f}."
        classes = counted(len(self.labels), "class", "classes")
        return (
            f"Object detector of {classes}, trained by voc2tflite. Input: an RGB picture of "
            f"{self.image_size}x{self.image_size} px, {fitted}. Data digest {self.data_digest}. Form: {self.form}."
            f"{best}{outside}"
        )


def read_description(model: bytes | Path | ModelFile) -> ModelDescription:
    """What the `.tflite` says about itself.

    Raises:
        ExportError: It cannot be read, or has no description by this project, or an invalid one.
    """
    file = model if isinstance(model, ModelFile) else ModelFile.read(model)
    members = file.members(_LIMITS)
    labels = _labels(members[LABELS_FILE], file)
    return ModelDescription(**_fields(members[DESCRIPTION_FILE], file), labels=labels)


def _labels(content: bytes, file: ModelFile) -> tuple[str, ...]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        found = f"{LABELS_FILE} is not UTF-8 (byte {error.start:,})"
        raise file.refusal(found, "the class names in UTF-8") from error
    # Not splitlines(): names may hold other characters that it takes for line ends (U+2028, form feed).
    names = text.removesuffix("\n").split("\n")
    if "" in names:
        raise file.refusal(f"line {names.index('') + 1} of {LABELS_FILE} is empty", "a class name a line")
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise file.refusal(f"{LABELS_FILE} names {quoted(twice)} twice", "a class name a line")
    return tuple(names)


def _fields(content: bytes, file: ModelFile) -> dict[str, Any]:
    """The description's fields except for the labels, each checked for its type and range."""
    try:
        stated = json.loads(content)
    except (ValueError, RecursionError) as error:
        found = f"{DESCRIPTION_FILE} is no JSON ({quoted(str(error))})"
        raise file.refusal(found, "an object of the fields") from error
    if not isinstance(stated, dict):
        raise file.refusal(f"{DESCRIPTION_FILE} holds a {type(stated).__name__}", "an object of the fields")
    missing, surplus = sorted(_TYPES.keys() - _OPTIONAL - stated.keys()), sorted(stated.keys() - _TYPES.keys())
    if missing:
        raise file.refusal(f"{DESCRIPTION_FILE} lacks {', '.join(missing)}", "all of them")
    if surplus:
        expected = f"{', '.join(sorted(_TYPES))}: another version wrote it"
        raise file.refusal(f"{DESCRIPTION_FILE} has a field {quoted(surplus[0])}", expected)
    for name, value in stated.items():
        # Not isinstance: True is an int.
        if type(value) is not _TYPES[name]:
            raise file.refusal(f"{name} is of type {type(value).__name__}", _TYPES[name].__name__)
    size, resize = stated["image_size"], stated["resize"]
    if not _LEAST_SIZE_PX <= size <= _MOST_SIZE_PX or size % _LEAST_SIZE_PX:
        expected = f"a multiple of {_LEAST_SIZE_PX} up to {_MOST_SIZE_PX}"
        raise file.refusal(f"image_size {str(size)[:_MOST_DIGITS]}", expected)
    if resize not in get_args(Resize):
        raise file.refusal(f"resize {quoted(resize)}", " or ".join(get_args(Resize)))
    if not 0 <= stated.get("best_score", 0) <= 1:
        raise file.refusal(f"best_score {stated['best_score']}", "a score in [0, 1]")
    return stated | {"decoding": _decoding(stated["decoding"], file)} if "decoding" in stated else stated


def _decoding(stated: dict[str, Any], file: ModelFile) -> Decoding:
    """How to decode, each number checked for its type and for a range in which decoding is safe."""
    wanted = {field.name for field in fields(Decoding)}
    if stated.keys() != wanted:
        raise file.refusal(f"decoding has {quoted(sorted(stated))}", f"{', '.join(sorted(wanted))}")
    for name, (kind, low, high) in _DECODING_RANGES.items():
        value = stated[name]
        values = (value if isinstance(value, list) else []) if name == "strides" else [value]
        if {type(each) for each in values} != {kind} or not all(low <= each <= high for each in values):
            raise file.refusal(f"decoding's {name} is {quoted(value)}", f"{kind.__name__} from {low} to {high}")
    for name, form in {"boxes": _BOX_FORM, "scores": _SCORE_FORM}.items():
        if stated[name] != form:
            raise file.refusal(f"decoding's {name} are {quoted(stated[name])}", f"{form}: another version wrote it")
    return Decoding(**{**stated, "strides": tuple(stated["strides"])})


def description_archive(offset: int, description: ModelDescription) -> bytes:
    """The archive that follows `offset` bytes of model.

    It is not compressed and has no time stamps, so that the same model gives the same bytes.
    """
    fields = {key: value for key, value in asdict(description).items() if key != "labels" and value is not None}
    files = {
        LABELS_FILE: "".join(f"{label}\n" for label in description.labels),
        # The identity (scale, slope, offset under INVERSE_LOGISTIC): the head's scores are already probabilities.
        CALIBRATION_FILE: "1.0,1.0,0.0\n" * len(description.labels),
        DESCRIPTION_FILE: json.dumps(fields, sort_keys=True, ensure_ascii=False),
    }
    # Written after a stand-in for the model, so that the offsets in the directory count from the file's start.
    target = io.BytesIO(b"\0" * offset)
    target.seek(offset)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text.encode())
    return target.getvalue()[offset:]
