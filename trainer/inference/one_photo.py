"""A photo from anywhere -> what a model sees in it, in its own process; for the page, if a browser cannot do it.

Its parent (`producer/page/sent/child.py`) decodes nothing: a photo that kills this process is just one refused photo.

Protocol: on standard input, which is a file, a line of JSON (`Asked`), the bytes of the model, then those of the photo.
On standard output a line of JSON, either from `look` or `{"error": ...}`, and the photo as a JPEG if it was asked for.
"""

import json
import resource
import sys
from typing import IO, Any, Final

import cv2
from pydantic import BaseModel, ConfigDict

from shared.errors import ExportError, ImageError, PipelineError
from shared.model.description import read_description
from shared.model.file import ModelFile
from shared.picture.header import read_header
from trainer.inference.detector import Detector
from trainer.inference.lite_model import memory_budget
from trainer.inference.sources import decode_picture
from trainer.inference.trial_load import REFUSED, limit_process
from trainer.pixels import Picture

# Seconds of processor time that a photo may take, even on a slow processor.
_MOST_S: Final = 60.0
# For a photo with 16 bits and four channels (8), converted to 8 bits (4), then colours and alpha apart (6); or one with
# 8 bits and three channels four times over: decoded, turned by its EXIF, coefficients of a progressive JPEG.
_BYTES_A_PIXEL: Final = 18
_BYTES_BESIDES: Final = 128 * 2**20
# The longer side and the quality of the JPEG that is shown.
_SHOWN_PX: Final = 1280
_SHOWN_QUALITY: Final = 88
# The most bytes of the answer, and of any other file that this process may write.
_MOST_TOLD_BYTES: Final = 8 * 2**20


class Asked(BaseModel):
    """The task: the model's name and size in bytes, the most pixels to decode, and whether a JPEG is wanted."""

    model_config = ConfigDict(extra="forbid")

    name: str
    model_bytes: int
    most_pixels: int
    with_picture: bool


def look(asked: Asked, model: bytes, photo: bytes) -> tuple[dict[str, Any], bytes]:
    """What a model sees in a photo, surest first, and the photo as a small upright JPEG, b"" if not asked for.

    Boxes are (xmin, ymin, xmax, ymax) in pixels of the upright photo.

    Raises:
        ImageError: It is not a photo, is damaged, or has too many pixels.
        ExportError: The model is damaged, or LiteRT cannot run it.
    """
    notes: list[str] = []
    header = read_header(photo, max_pixels=asked.most_pixels)
    pixels = decode_picture(photo, "the photo", notes.append)
    if pixels is None:
        raise ImageError(f"damaged: it cannot be decoded as {header.format}")
    detector = Detector(model, file=asked.name, is_apart=True)
    seen = detector.detect(pixels)
    rows = zip(seen.boxes.tolist(), seen.class_ids.tolist(), seen.scores.tolist(), strict=True)
    told = {
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "threshold": detector.description.threshold,
        "notes": notes,
        "seen": [
            {"label": detector.labels[class_id - 1], "class_id": class_id, "score": score, "box": box}
            for box, class_id, score in rows
        ],
    }
    return told, _as_jpeg(pixels) if asked.with_picture else b""


def _as_jpeg(pixels: Picture) -> bytes:
    scale = min(1.0, _SHOWN_PX / max(pixels.shape[:2]))
    size = [max(1, round(side * scale)) for side in pixels.shape[1::-1]]
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA) if scale < 1 else pixels
    return cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, _SHOWN_QUALITY])[1].tobytes()


def _main(given: IO[bytes], told: IO[bytes]) -> int:
    asked = Asked.model_validate_json(given.readline())
    model = given.read(asked.model_bytes)
    cv2.setNumThreads(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_TOLD_BYTES, _MOST_TOLD_BYTES))
    budget = _BYTES_BESIDES + _BYTES_A_PIXEL * asked.most_pixels
    try:
        size = _image_size(asked, model)
        limit_process(budget + memory_budget(model, size), _MOST_S)
        found, picture = look(asked, model, given.read())
    except PipelineError as error:
        told.write(json.dumps({"error": str(error)}).encode() + b"\n")
        return REFUSED
    told.write(json.dumps(found).encode() + b"\n" + picture)
    return 0


def _image_size(asked: Asked, model: bytes) -> int:
    file = ModelFile.read(model, asked.name)
    if len(model) != asked.model_bytes:
        raise ExportError(f"{asked.name}: found {len(model)} bytes, expected {asked.model_bytes}")
    file.check_identifier()
    return read_description(file).image_size


if __name__ == "__main__":
    sys.exit(_main(sys.stdin.buffer, sys.stdout.buffer))
