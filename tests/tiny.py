"""A VOC folder of many pictures that cost next to nothing: 16x16 pixels, each with its own colour and bytes."""

from pathlib import Path

import cv2
import numpy as np

XML = (
    "<annotation><size><width>16</width><height>16</height><depth>3</depth></size><object><name>x</name>"
    "<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>"
)


def make_tiny_voc(folder: Path, pictures: int, annotated: int | None = None) -> Path:
    """Write `pictures` pictures; the first `annotated` of them (all by default) have an XML with one object."""
    for name in ("JPEGImages", "Annotations"):
        (folder / name).mkdir(parents=True)
    for number in range(pictures):
        add_tiny_picture(folder, number, has_xml=annotated is None or number < annotated)
    return folder


def add_tiny_picture(folder: Path, number: int, *, has_xml: bool = True) -> None:
    """Write picture `number`, from 0 to 2**24 - 1."""
    colour = (number & 255, number >> 8 & 255, number >> 16)
    _, encoded = cv2.imencode(".jpg", np.full((16, 16, 3), colour, np.uint8))
    # What follows a JPEG's end is not read; it makes every file another, whatever the codec rounds away.
    with open(f"{folder}/JPEGImages/{number:06d}.jpg", "wb") as file:
        file.write(encoded.tobytes() + str(number).encode())
    if has_xml:
        with open(f"{folder}/Annotations/{number:06d}.xml", "w") as file:
            file.write(XML)
