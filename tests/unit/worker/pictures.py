"""Pictures and annotations that the worker's tests are made of, as real bytes of real encoders."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shared.jobs.job import Job, PathPair, ShardTask, SplitPlan
from shared.picture.tiff import read_directory
from shared.specs.data import JobSpec
from tests.path_pairs import path_pair
from worker.record.prepare import Recipe, recipe_of

Pixels = NDArray[np.uint8]


def soft_picture(width: int, height: int, seed: int = 0) -> Pixels:
    """A smooth picture without symmetry, uint8 [H, W, 3], BGR: every turn and every shift changes it."""
    rng = np.random.default_rng(seed)
    small = rng.integers(30, 226, (5, 7, 3), dtype=np.uint8)
    picture = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(picture, np.uint8)


def encode(pixels: Pixels, image_format: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """BGR pixels as a file by Pillow."""
    if image_format == "JPEG":
        options = {"quality": 95, "subsampling": 0} | options
    stream = io.BytesIO()
    Image.fromarray(pixels[:, :, ::-1].copy()).convert(mode).save(stream, image_format, **options)
    return stream.getvalue()


def encode_image(image: Image.Image, image_format: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def masked_bmp(pixels: Pixels, alpha: Pixels, *masks: int, header_bytes: int = 40) -> bytes:
    """Pixels as a 32-bit BMP with BI_BITFIELDS, whatever `masks` say: blue in the lowest byte, alpha in the highest.

    Args:
        pixels: uint8 [H, W, 3], BGR.
        alpha: uint8 [H, W]: byte 4, whether or not a mask names it.
        masks: What the file says of red, green, blue and alpha, in this order; three below 56 bytes.
        header_bytes: Size of the header (40, 52, 56, 108 or 124); masks follow the one of 40 and stand in the others.
    """
    height, width = alpha.shape
    rows = np.dstack([pixels, alpha])[::-1].tobytes()
    sizes = struct.pack("<IiiHHIIiiII", header_bytes, width, height, 1, 32, 3, len(rows), 0, 0, 0, 0)
    head = (sizes + struct.pack(f"<{len(masks)}I", *masks)).ljust(header_bytes, b"\0")
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(rows), 0, 0, 14 + len(head)) + head + rows


def gray_png(samples: NDArray[np.uint16], depth: int, clear: int | None = None) -> bytes:
    """A gray PNG of `depth` bits a sample; `samples` uint16 [H, W] below 2 ** depth, W a multiple of 8.

    Args:
        samples: What is stored.
        depth: 1, 2, 4, 8 or 16.
        clear: The sample that its tRNS chunk calls transparent.
    """
    height, width = samples.shape
    bits = (samples[:, :, None] >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    filtered = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)]
    chunks += [] if clear is None else [b"tRNS" + struct.pack(">H", clear)]
    chunks += [b"IDAT" + zlib.compress(filtered), b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def with_orientation(pixels: Pixels, orientation: int, image_format: str = "JPEG", **options: Any) -> bytes:
    """A file of these raw pixels whose EXIF says `orientation`."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    if image_format == "TIFF":
        return encode(pixels, "TIFF", tiffinfo={0x0112: orientation}, **options)
    return encode(pixels, image_format, exif=exif, **options)


def with_tag(content: bytes, tag: int, value: int) -> bytes:
    """A TIFF in which `tag`, which it has, says `value`."""
    directory = read_directory(content)
    assert directory is not None
    offset, code = directory.offsets[tag]
    patched = bytearray(content)
    struct.pack_into(code, patched, offset, value)
    return bytes(patched)


def decode_stored(content: bytes) -> Pixels:
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    assert pixels is not None
    return np.asarray(pixels, np.uint8)


def psnr(a: Pixels, b: Pixels) -> float:
    error = float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).mean())
    return 99.0 if error == 0 else 10 * float(np.log10(255**2 / error))


def voc_xml(
    *boxes: tuple[Any, ...],
    size: tuple[int, int] | None = None,
    name: str = "cat",
    extra: str = "",
) -> bytes:
    """An annotation; each box is (xmin, ymin, xmax, ymax) or (xmin, ymin, xmax, ymax, name)."""
    objects = "".join(
        f"<object><name>{box[4] if len(box) > 4 else name}</name>{extra}<bndbox><xmin>{box[0]}</xmin>"
        f"<ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for box in boxes
    )
    named = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height></size>"
    return f"<annotation>{named}{objects}</annotation>".encode()


def write_pair(folder: Path, stem: str, image: bytes, xml: bytes | None, *, extension: str = ".jpg") -> PathPair:
    """Write both files below `folder`; the pair's id is the number of pictures there."""
    for name in ("JPEGImages", "Annotations"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "JPEGImages" / f"{stem}{extension}").write_bytes(image)
    if xml is not None:
        (folder / "Annotations" / f"{stem}.xml").write_bytes(xml)
    annotation = None if xml is None else f"Annotations/{stem}.xml"
    source_id = len(list((folder / "JPEGImages").iterdir()))
    return path_pair(folder, f"JPEGImages/{stem}{extension}", annotation, source_id=source_id)


def make_job(*pairs: PathPair, labels: tuple[str, ...] = ("cat", "dog"), **options: Any) -> tuple[Job, ShardTask]:
    """A job of one shard, whose data set is the folder `set` of the data root."""
    task = ShardTask(job="job", split="train", index=0, count=1, pairs=pairs)
    job = Job(
        job="job",
        dataset="set",
        folder="set",
        spec=JobSpec.model_validate({"image_size": 64} | options),
        run=None,
        labels=labels,
        splits={"train": SplitPlan(pairs=len(pairs), digests=(task.digest(),))},
        request_digest="0" * 64,
    )
    return job, task


def make_recipe(data_root: Path, **options: Any) -> Recipe:
    return recipe_of(make_job(**options)[0], data_root)
