"""Made-up camera pictures with an object each, as a VOC folder and as a folder a class: the same files.

Real texture (tests/bench/picture_stage.py's photographs: noise at every scale, edges, sensor noise), so that decoding
costs what it does on photographs; a circle, cross or triangle on it.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from tests.bench.picture_stage import photo

CLASSES: Final = ("circle", "cross", "triangle")
WIDTH: Final = 640
HEIGHT: Final = 480
QUALITY: Final = 92
# Pictures are windows of so many large textures.
TEXTURES: Final = 8

_XML: Final = """<annotation><filename>{name}.jpg</filename>
<size><width>{width}</width><height>{height}</height><depth>3</depth></size>
<object><name>{label}</name><bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax>
</bndbox></object></annotation>
"""


def make_photos(folder: Path, count: int) -> Path:
    """Write `count` pictures below `folder`, unless they are there.

    Returns:
        The folder: `voc/JPEGImages`, `voc/Annotations`, `classes/<class>`.
    """
    done = folder / f"pictures-{count}"
    if done.is_dir():
        return done
    making = folder / f"making-{count}"
    shutil.rmtree(making, ignore_errors=True)
    for part in ("voc/JPEGImages", "voc/Annotations", *(f"classes/{name}" for name in CLASSES)):
        (making / part).mkdir(parents=True)
    textures = [_texture(seed) for seed in range(min(TEXTURES, count))]
    for number in range(count):
        _write(making, number, textures[number % len(textures)])
    making.rename(done)
    return done


def _texture(seed: int) -> NDArray[np.uint8]:
    decoded = cv2.imdecode(np.frombuffer(photo(2 * WIDTH, 2 * HEIGHT, seed), np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded  # type: ignore[return-value]  # 8 bit


def _write(folder: Path, number: int, texture: NDArray[np.uint8]) -> None:
    rng = np.random.default_rng((number, 1))
    top, left = int(rng.integers(0, HEIGHT)), int(rng.integers(0, WIDTH))
    picture = np.ascontiguousarray(texture[top : top + HEIGHT, left : left + WIDTH])
    label, name = CLASSES[number % len(CLASSES)], f"photo_{number:05d}"
    box = _draw(picture, label, rng)
    image = folder / "voc/JPEGImages" / f"{name}.jpg"
    image.write_bytes(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes())
    xml = _XML.format(name=name, width=WIDTH, height=HEIGHT, label=label, box=box)
    (folder / "voc/Annotations" / f"{name}.xml").write_text(xml)
    os.link(image, folder / "classes" / label / image.name)


def _draw(picture: NDArray[np.uint8], label: str, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw an object; returns its box (xmin, ymin, xmax, ymax) in pixels."""
    size = int(rng.integers(HEIGHT // 6, HEIGHT // 2))
    x, y = int(rng.integers(0, WIDTH - size)), int(rng.integers(0, HEIGHT - size))
    color = [int(value) for value in rng.integers(0, 256, 3)]
    if label == "circle":
        cv2.circle(picture, (x + size // 2, y + size // 2), size // 2, color, -1, cv2.LINE_AA)
    elif label == "triangle":
        corners = np.array([[x, y + size], [x + size, y + size], [x + size // 2, y]], np.int32)
        cv2.fillPoly(picture, [corners], color, cv2.LINE_AA)
    else:
        cv2.line(picture, (x, y), (x + size, y + size), color, size // 5, cv2.LINE_AA)
        cv2.line(picture, (x + size, y), (x, y + size), color, size // 5, cv2.LINE_AA)
    return x, y, x + size, y + size
