"""A seed -> a made-up VOC folder for the demo and the tests: circles, crosses and triangles on soft textures.

The classes differ only in shape; colour, size, rotation and shading say nothing about them. Each picture has its own
generators, seeded by (seed, picture number), so that pictures do not depend on the order of the work or on how many
there are. Only `Generator.random` of PCG64 is used: numpy may change the streams of its other methods.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import cv2
import numpy as np
from numpy.typing import NDArray

from worker.synthetic import MAX_IMAGES

Pixels = NDArray[np.uint8]
Points = NDArray[np.float64]

CLASSES: Final = ("circle", "cross", "triangle")
MIN_SIDE_PX: Final = 320
MAX_SIDE_PX: Final = 1600
ASPECTS: Final = (1.0, 4 / 3, 4 / 3, 3 / 2, 16 / 9)
JPEG_QUALITY: Final = 90

# Every 16th picture shows no object; every 4th is in portrait format.
EMPTY_EVERY: Final = 16
PORTRAIT_EVERY: Final = 4

# An object's length as a share of the picture's short side. Below 8 % it would be a 25-pixel smudge at 320 px.
MIN_LENGTH: Final = 0.13
MAX_LENGTH: Final = 0.38
# Two boxes may share at most this part of the smaller one: objects may overlap, but none is hidden.
MAX_OVERLAP: Final = 0.25
# The least distance (of 441) between an object's colour and the mean colour of its background.
MIN_CONTRAST: Final = 110.0

# OpenCV's fillPoly takes subpixel corners in fixed point with this many fraction bits.
_SHIFT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One object of a made-up picture: its class, its outline and its box.

    `outline` is float64 [P, 2], (x, y) in pixels; `box` is (xmin, ymin, xmax, ymax) in pixels, 0-based corners.
    """

    name: str
    outline: Points
    box: tuple[int, int, int, int]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A made-up picture before it is painted."""

    stem: str
    width: int
    height: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSet:
    """What was written: the numbers of pictures, of pictures without objects, and of objects by class."""

    images: int
    background: int
    class_counts: dict[str, int]


def synthesize(
    folder: Path, *, images: int = 480, seed: int = 0, progress: Callable[[int], None] = lambda _done: None
) -> SyntheticSet:
    """Write a made-up VOC data set: `Annotations/`, `JPEGImages/`, `ImageSets/Main/{train,val,test}.txt`.

    The same seed gives the same scenes on every machine; files of an earlier set of the same size are replaced.
    `progress` is called with the number of pictures written so far.

    Raises:
        ValueError: `images` is not within 1 to `MAX_IMAGES`.
    """
    if not 1 <= images <= MAX_IMAGES:
        raise ValueError(f"images must be 1 to {MAX_IMAGES}, not {images}")
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    counts, background = Counter(dict.fromkeys(CLASSES, 0)), 0
    # Threads work here: OpenCV releases the interpreter lock while it draws and encodes, and nothing is shared.
    with ThreadPoolExecutor(max_workers=2) as pool:
        written = pool.map(lambda number: _write_pair(folder, number, seed), range(images))
        for done, scene in enumerate(written, start=1):
            background += not scene.shapes
            counts.update(shape.name for shape in scene.shapes)
            progress(done)
    _write_lists(folder / "ImageSets" / "Main", images)
    return SyntheticSet(images=images, background=background, class_counts=dict(counts))


def foreign_file(folder: Path, images: int) -> Path | None:
    """A file in `folder` that does not belong to a made-up set of this many pictures; hidden files do not count."""
    stems = [_stem(number) for number in range(images)]
    own = {f"JPEGImages/{stem}.jpg" for stem in stems} | {f"Annotations/{stem}.xml" for stem in stems}
    own |= {f"ImageSets/Main/{name}.txt" for name in ("train", "val", "test")}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return next((path for path in files if path.relative_to(folder).as_posix() not in own), None)


def _write_pair(folder: Path, number: int, seed: int) -> Scene:
    scene = draw_scene(number, seed)
    written, jpeg = cv2.imencode(".jpg", paint(scene, number, seed), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not written:
        raise ValueError(f"OpenCV could not encode {scene.stem}")
    (folder / "JPEGImages" / f"{scene.stem}.jpg").write_bytes(jpeg.tobytes())
    (folder / "Annotations" / f"{scene.stem}.xml").write_text(scene_xml(scene), encoding="utf-8")
    return scene


def _write_lists(folder: Path, images: int) -> None:
    """Write lists with 75, 10 and 15 % for train, val and test, interleaved so that the first pictures cover all."""
    lists: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for number in range(images):
        turn = number % 20
        lists["val" if turn in (4, 14) else "test" if turn in (9, 17, 19) else "train"].append(_stem(number))
    for name, stems in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{stem}\n" for stem in stems), encoding="utf-8")


def _stem(number: int) -> str:
    return f"shapes_{number:05d}"


def _uniforms(seed: int, number: int, stream: int) -> Iterator[float]:
    """Uniform numbers in [0, 1) of one picture; its scene and its paint draw from different streams."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number, stream])))
    while True:
        yield float(generator.random())


def draw_scene(number: int, seed: int) -> Scene:
    """Choose the size and the objects of picture `number`."""
    uniforms = _uniforms(seed, number, 0)
    width, height = _choose_size(uniforms, upright=number % PORTRAIT_EVERY == 1)
    wanted = 0 if number % EMPTY_EVERY == 7 else 1 + int(next(uniforms) * 8)
    shapes: list[Shape] = []
    # A crowded picture may not have room for all wanted objects; then it gets fewer.
    for _ in range(wanted * 12):
        if len(shapes) == wanted:
            break
        shape = _choose_shape(uniforms, width, height)
        if all(_overlap(shape.box, other.box) <= MAX_OVERLAP for other in shapes):
            shapes.append(shape)
    return Scene(stem=_stem(number), width=width, height=height, shapes=tuple(shapes))


def _choose_size(uniforms: Iterator[float], *, upright: bool) -> tuple[int, int]:
    aspect = ASPECTS[int(next(uniforms) * len(ASPECTS))]
    # Squared, so that small pictures are more frequent, which keeps the demo quick.
    short = MIN_SIDE_PX + int(next(uniforms) ** 2 * (MAX_SIDE_PX / aspect - MIN_SIDE_PX))
    long = min(MAX_SIDE_PX, round(short * aspect))
    return (short, long) if upright else (long, short)


def _choose_shape(uniforms: Iterator[float], width: int, height: int) -> Shape:
    name = CLASSES[int(next(uniforms) * len(CLASSES))]
    radius = min(width, height) * (MIN_LENGTH + next(uniforms) ** 1.5 * (MAX_LENGTH - MIN_LENGTH)) / 2
    # One in ten may extend beyond the picture by up to a third of its radius; the others are inside.
    margin = radius * (0.67 if next(uniforms) < 0.1 else 1.02)
    x = margin + next(uniforms) * (width - 2 * margin)
    y = margin + next(uniforms) * (height - 2 * margin)
    outline = _outline(name, radius, angle=next(uniforms) * 2 * math.pi) + np.array([x, y])
    left, top = np.floor(outline.min(axis=0)).astype(int).tolist()
    right, bottom = np.ceil(outline.max(axis=0)).astype(int).tolist()
    box = (max(left, 0), max(top, 0), min(right, width), min(bottom, height))
    return Shape(name=name, outline=outline, box=box, truncated=box != (left, top, right, bottom))


def _outline(name: str, radius: float, angle: float) -> Points:
    """Corners of a shape around the origin, float64 [P, 2], (x, y) in pixels."""
    if name == "circle":
        turns = np.arange(64) / 64
        return radius * np.stack([np.cos(turns * 2 * math.pi), np.sin(turns * 2 * math.pi)], axis=1)
    if name == "triangle":
        corners = np.array([[math.cos(turn * 2 * math.pi / 3), math.sin(turn * 2 * math.pi / 3)] for turn in range(3)])
    else:
        arm = 0.30
        quarter = np.array([[arm, 1], [-arm, 1], [-arm, arm]])
        quarters = [quarter @ np.array([[c, s], [-s, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))]
        corners = np.concatenate(quarters) / math.hypot(1, arm)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    rotated: Points = radius * corners @ turn
    return rotated


def _overlap(box: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """The shared area of two boxes (xmin, ymin, xmax, ymax), as a fraction of the smaller one."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    areas = [(xmax - xmin) * (ymax - ymin) for xmin, ymin, xmax, ymax in (box, other)]
    return max(width, 0) * max(height, 0) / max(min(areas), 1)


def paint(scene: Scene, number: int, seed: int) -> Pixels:
    """The picture of `scene`: uint8 [H, W, 3], BGR."""
    uniforms = _uniforms(seed, number, 1)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, number, 2])))
    picture = _ground(scene.width, scene.height, uniforms, generator)
    for shape in scene.shapes:
        xmin, ymin, xmax, ymax = shape.box
        ground = picture[ymin:ymax, xmin:xmax]
        colour = _choose_colour(uniforms, ground.mean(axis=(0, 1)))
        mask = np.zeros(ground.shape[:2], np.uint8)
        corners = np.round((shape.outline - [xmin, ymin] - 0.5) * 2**_SHIFT).astype(np.int32)
        cv2.fillPoly(mask, [corners], 255, cv2.LINE_AA, _SHIFT)
        cover = (mask.astype(np.float32) / 255)[:, :, None]
        # A gradient of light across the object, so that its colour is not one flat value.
        slope = np.linspace(0.85 + 0.3 * next(uniforms), 0.85 + 0.3 * next(uniforms), ymax - ymin, dtype=np.float32)
        painted = np.clip(slope[:, None, None] * colour, 0, 255)
        picture[ymin:ymax, xmin:xmax] = np.round(ground + cover * (painted - ground)).astype(np.uint8)
    return picture


def _ground(width: int, height: int, uniforms: Iterator[float], generator: np.random.Generator) -> Pixels:
    """A soft texture: a colour, large clouds of other colours, ripples and a little grain."""
    colour = np.array([60 + 135 * next(uniforms) for _ in range(3)], np.float32)
    small = (max(width // 4, 8), max(height // 4, 8))
    clouds = cv2.resize(generator.random((4, 5, 3)).astype(np.float32), small, interpolation=cv2.INTER_CUBIC)
    ripples = cv2.resize(generator.random((18, 24)).astype(np.float32), small, interpolation=cv2.INTER_CUBIC)
    ground = colour + 70 * (clouds - 0.5) + 22 * (ripples[:, :, None] - 0.5)
    soft = cv2.resize(np.clip(ground, 0, 247).astype(np.uint8), (width, height), interpolation=cv2.INTER_LINEAR)
    # One tile of grain, repeated: fresh grain for every pixel would cost more than everything else.
    tile = (generator.random((128, 128, 1)) * 8).astype(np.uint8)
    grain = np.tile(tile, (height // 128 + 1, width // 128 + 1, 3))[:height, :width]
    painted: Pixels = soft + grain
    return painted


def _choose_colour(uniforms: Iterator[float], ground: NDArray[np.float64]) -> NDArray[np.float32]:
    """A colour, float32 [3], BGR, that stands out from the mean colour of its background."""
    while True:
        colour = np.array([255 * next(uniforms) for _ in range(3)])
        if float(np.linalg.norm(colour - ground)) >= MIN_CONTRAST:
            return colour.astype(np.float32)


def scene_xml(scene: Scene) -> str:
    """The VOC annotation of `scene`, as LabelImg writes it (0-based corners)."""
    objects = "".join(map(_object_xml, scene.shapes))
    return (
        f"<annotation>\n  <folder>JPEGImages</folder>\n  <filename>{escape(scene.stem)}.jpg</filename>\n"
        "  <source>\n    <database>synthetic shapes</database>\n  </source>\n"
        f"  <size>\n    <width>{scene.width}</width>\n    <height>{scene.height}</height>\n    <depth>3</depth>\n"
        f"  </size>\n  <segmented>0</segmented>\n{objects}</annotation>\n"
    )


def _object_xml(shape: Shape) -> str:
    named = zip(("xmin", "ymin", "xmax", "ymax"), shape.box, strict=True)
    corners = "".join(f"      <{key}>{corner}</{key}>\n" for key, corner in named)
    return (
        f"  <object>\n    <name>{shape.name}</name>\n    <pose>Unspecified</pose>\n"
        f"    <truncated>{int(shape.truncated)}</truncated>\n    <difficult>0</difficult>\n"
        f"    <bndbox>\n{corners}    </bndbox>\n  </object>\n"
    )
