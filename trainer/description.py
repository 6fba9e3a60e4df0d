"""What an exported model says of itself: labels, picture size and the rest, zipped to the end of the `.tflite`.

Format: the associated files of "TensorFlow Lite Model Metadata": a zip archive behind the flatbuffer, which zip readers
find from the file's end and TFLite ignores. Needs the standard library only, so that `predict` runs anywhere.
"""

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from shared.errors import ExportError

LABELS_FILE: Final = "labels.txt"
CALIBRATION_FILE: Final = "score_calibration.txt"
DESCRIPTION_FILE: Final = "voc2tflite.json"

# Pixels 0..255 → [-1, 1]; for a uint8 input the client undoes it by the input's scale 1/127.5.
PIXEL_MEAN: Final = 127.5
PIXEL_STD: Final = 127.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What an exported file says of itself; every client reads it, `predict` obeys it."""

    name: str
    version: str
    licence: str
    labels: tuple[str, ...]
    image_size: int
    resize: Literal["stretch", "letterbox"]
    data_digest: str
    form: str = ""

    def sentence(self) -> str:
        """The description for people."""
        fitted = "stretched to the square" if self.resize == "stretch" else "scaled to fit, centred on gray 114"
        return (
            f"Object detector of {len(self.labels)} classes, trained by voc2tflite. Input: an RGB picture of "
            f"{self.image_size}x{self.image_size} px, {fitted}. Data digest {self.data_digest}. Form: {self.form}."
        )


def read_description(model: bytes | Path) -> ModelDescription:
    """What the `.tflite` says of itself.

    Raises:
        ExportError: It carries no description of this project.
    """
    source = io.BytesIO(model) if isinstance(model, bytes) else model
    try:
        with zipfile.ZipFile(source) as archive:
            fields = json.loads(archive.read(DESCRIPTION_FILE))
            labels = archive.read(LABELS_FILE).decode().splitlines()
    except (zipfile.BadZipFile, KeyError) as error:
        raise ExportError(
            f"{model if isinstance(model, Path) else 'model'}: no voc2tflite description in it"
        ) from error
    return ModelDescription(**{**fields, "labels": tuple(labels)})


def description_archive(offset: int, description: ModelDescription) -> bytes:
    """The archive that follows `offset` bytes of model.

    Stored, without times, so that the same model is the same bytes.
    """
    fields = {key: value for key, value in asdict(description).items() if key != "labels"}
    files = {
        LABELS_FILE: "".join(f"{label}\n" for label in description.labels),
        # The identity (scale, slope, offset under INVERSE_LOGISTIC): the head's scores are already probabilities.
        CALIBRATION_FILE: "1.0,1.0,0.0\n" * len(description.labels),
        DESCRIPTION_FILE: json.dumps(fields, sort_keys=True, ensure_ascii=False),
    }
    # Written behind a stand-in for the model, so that the offsets in the directory count from the file's start.
    target = io.BytesIO(b"\0" * offset)
    target.seek(offset)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text.encode())
    return target.getvalue()[offset:]
