"""VOC folders for the Docker tests: small made-up ones, and large photos that keep a core busy."""

import shutil
from pathlib import Path

import cv2
import numpy as np

from worker.synthetic.shapes import synthesize

ANNOTATION = """<annotation><folder>VOC</folder><filename>{stem}.jpg</filename>
<size><width>{width}</width><height>{height}</height><depth>3</depth></size>
<object><name>thing</name><bndbox><xmin>100</xmin><ymin>100</ymin><xmax>900</xmax><ymax>800</ymax></bndbox></object>
</annotation>"""


def small_photos(folder: Path, images: int) -> None:
    """A made-up set of circles, crosses and triangles in `folder`."""
    synthesize(folder, images=images, seed=0)


def large_photos(folder: Path, images: int, *, width: int = 4000, height: int = 3000) -> None:
    """`images` pairs of `width` x `height` pixels: 8 different photos, each under many names."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for number in range(images):
        target = folder / f"photo{number:05d}.jpg"
        if number < 8:
            coarse = noise.integers(0, 255, (height // 20, width // 20, 3), dtype=np.uint8)
            cv2.imwrite(str(target), cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))
        else:
            shutil.copyfile(folder / f"photo{number % 8:05d}.jpg", target)
        text = ANNOTATION.format(stem=target.stem, width=width, height=height)
        target.with_suffix(".xml").write_text(text)
