"""Paths, camera index, video file → pictures to look at; and what was seen → pictures, video and COCO JSON on disk."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.errors import ImageError
from trainer.detections import Detections, to_coco
from trainer.draw import draw_detections


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture to look at: `pixels` uint8 [H, W, 3], BGR; `is_moving` when it is one of a video's or camera's."""

    name: str
    pixels: NDArray[np.uint8]
    is_moving: bool


def frames(source: str, limit: int | None = None) -> Iterator[Frame]:
    """The pictures behind one argument of `predict`.

    Args:
        source: A picture, a folder of pictures, a video file, or the index of a camera ("0").
        limit: At most so many frames of a video or camera.

    Raises:
        ImageError: There is no such file, camera, or it cannot be read as picture or video.
    """
    path = Path(source)
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if child.is_file() and (pixels := _picture(child)) is not None:
                yield Frame(name=child.name, pixels=pixels, is_moving=False)
    elif path.is_file() and (pixels := _picture(path)) is not None:
        yield Frame(name=path.name, pixels=pixels, is_moving=False)
    elif path.is_file() or source.isdecimal():
        yield from islice(_moving(source), limit)
    else:
        raise ImageError(f"{source}: no such picture, folder, video or camera")


def _picture(path: Path) -> NDArray[np.uint8] | None:
    """The picture, upright, BGR; None for what is no picture."""
    # Not imread: it cannot open names that the system's code page has no letters for (Windows).
    content = np.frombuffer(path.read_bytes(), np.uint8)
    return None if content.size == 0 else cv2.imdecode(content, cv2.IMREAD_COLOR)  # type: ignore[return-value]  # 8 bit


def _moving(source: str) -> Iterator[Frame]:
    is_camera = source.isdecimal() and not Path(source).is_file()
    capture = cv2.VideoCapture(int(source)) if is_camera else cv2.VideoCapture(source)
    try:
        if not capture.isOpened():
            raise ImageError(f"{source}: neither a picture nor a video that OpenCV reads, nor a camera that is there")
        name = f"camera{source}" if is_camera else Path(source).stem
        index = 0
        while True:
            is_read, pixels = capture.read()
            if not is_read:
                return
            yield Frame(name=f"{name}_{index:06d}.jpg", pixels=pixels.astype(np.uint8, copy=False), is_moving=True)
            index += 1
    finally:
        capture.release()


@dataclass(slots=True, kw_only=True)
class SeenWriter:
    """Collects what was seen; writes a drawn picture for each frame as it comes, where there is a folder for them."""

    labels: tuple[str, ...]
    folder: Path | None
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, frame: Frame, seen: Detections) -> None:
        """Note the detections of one frame, boxes in its pixels."""
        image_id = len(self.images) + 1
        height, width = frame.pixels.shape[:2]
        self.images.append({"id": image_id, "file_name": frame.name, "width": width, "height": height})
        for record in to_coco(seen, image_id):
            box: Any = record["bbox"]
            area = {"id": len(self.annotations) + 1, "area": box[2] * box[3], "iscrowd": 0}
            self.annotations.append(record | area)
        if self.folder is not None:
            self._draw(frame, seen, self.folder)

    def coco(self) -> dict[str, Any]:
        """All that was seen, in COCO form; boxes [x, y, width, height] in pixels of the original picture."""
        categories = [{"id": index, "name": name} for index, name in enumerate(self.labels, start=1)]
        return {"images": self.images, "annotations": self.annotations, "categories": categories}

    def finish(self) -> None:
        """Write `detections.json` beside the drawn pictures."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.coco(), indent=1, ensure_ascii=False)
            (self.folder / "detections.json").write_text(text, encoding="utf-8")

    def _draw(self, frame: Frame, seen: Detections, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        drawn = draw_detections(frame.pixels, seen, self.labels)
        content = cv2.imencode(".jpg", drawn, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()
        self._free_name(folder, frame.name).write_bytes(content)

    def _free_name(self, folder: Path, name: str) -> Path:
        """Two pictures of one stem, or of one name from two folders, both keep theirs."""
        taken = sum(Path(image["file_name"]).stem == Path(name).stem for image in self.images[:-1])
        return folder / f"{Path(name).stem}{f'_{taken + 1}' if taken else ''}.jpg"
