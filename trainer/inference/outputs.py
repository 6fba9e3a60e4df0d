"""Frames and their detections -> drawn pictures, drawn videos and COCO JSON on disk."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import cv2

from shared.errors import ImageError
from trainer.detections import Detections, to_coco
from trainer.inference.sources import Frame
from trainer.pixels import Picture

# The file beside the drawn pictures and videos, and the extensions of those.
DETECTIONS: Final = "detections.json"
DRAWN: Final = (".jpg", ".mp4")


@dataclass(slots=True, kw_only=True)
class DetectionWriter:
    """Collects detections and, if there is a folder, writes drawn pictures and videos as they come.

    A picture becomes a picture, a video or camera a video (mp4, without sound). `renamed` lists those that are drawn
    under another name because their own was taken.
    """

    labels: tuple[str, ...]
    folder: Path | None
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)
    _paths: list[Path | None] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)
    _video: cv2.VideoWriter | None = None

    def add(self, frame: Frame, seen: Detections, drawn: Picture) -> None:
        """Add the detections of one frame, boxes in its pixels; `drawn` is the picture that shows them."""
        if self.folder is not None:  # first, so that if it fails, `finish` has nothing to write
            self.folder.mkdir(parents=True, exist_ok=True)
        image_id = len(self.images) + 1
        height, width = frame.pixels.shape[:2]
        self._paths.append(frame.path)
        self.images.append({"id": image_id, "file_name": frame.name, "width": width, "height": height})
        for number, record in enumerate(to_coco(seen, image_id), start=len(self.annotations) + 1):
            box: Any = record["bbox"]
            self.annotations.append(record | {"id": number, "area": box[2] * box[3], "iscrowd": 0})
        if self.folder is None:
            return
        if frame.video is not None:
            self._write_frame(self.folder, frame, drawn)
            return
        content = cv2.imencode(".jpg", drawn, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()
        (self.folder / self._free(frame, Path(frame.name).stem, ".jpg")).write_bytes(content)

    def _write_frame(self, folder: Path, frame: Frame, drawn: Picture) -> None:
        if self._video is None or frame.is_first:
            self._end_video()
            path = folder / self._free(frame, frame.video or "", ".mp4")
            size = drawn.shape[1], drawn.shape[0]
            self._video = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), frame.fps, size)
            if not self._video.isOpened():
                raise ImageError(f"{path}: this video of {size[0]}x{size[1]} px cannot be written; name another --out")
        self._video.write(drawn)

    def _free(self, frame: Frame, stem: str, ending: str) -> str:
        """A name that is not taken, as two pictures may have the same stem, or the same name in two folders."""
        names = (stem if number == 1 else f"{stem}_{number}" for number in count(1))
        free = next(name for name in names if name.casefold() not in self._taken)  # some disks ignore case
        self._taken.add(free.casefold())
        if free != stem:
            self.renamed.append(f"{frame.path or frame.shown} as {free}{ending}")
        return f"{free}{ending}"

    def _end_video(self) -> None:
        if self._video is not None:
            self._video.release()
            self._video = None

    def coco(self) -> dict[str, Any]:
        """All detections in COCO form; boxes are [x, y, width, height] in pixels of the original picture.

        If files in two folders have the same name, all files are named relative to their common folder; if two videos
        in one folder have the same stem, frames are named after the whole name of their file.
        """
        categories = [{"id": index, "name": name} for index, name in enumerate(self.labels, start=1)]
        names = _told_apart([image["file_name"] for image in self.images], self._paths)
        images = [image | {"file_name": name} for image, name in zip(self.images, names, strict=True)]
        return {"images": images, "annotations": self.annotations, "categories": categories}

    def finish(self) -> None:
        """End the last video, and write `detections.json` beside the drawn pictures."""
        self._end_video()
        if self.folder is not None and self.images:
            # As ASCII, because a picture's name need not be UTF-8; JSON escapes can hold it.
            (self.folder / DETECTIONS).write_text(json.dumps(self.coco(), indent=1), encoding="ascii")


def _told_apart(names: Sequence[str], paths: Sequence[Path | None]) -> list[str]:
    """The names; if two files would have the same one, by the whole file name or relative to the common folder."""
    files = [None if path is None else Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - no links
    lying = {(file, name) for file, name in zip(files, names, strict=True) if file is not None}
    if len({name for _, name in lying}) == len(lying):
        return list(names)
    is_stem_shared = len({(file.parent, name) for file, name in lying}) < len(lying)
    whole = [_by_whole_name(name, file) if is_stem_shared else name for name, file in zip(names, files, strict=True)]
    if is_stem_shared:
        return _told_apart(whole, paths)
    common = _common_folder([file.parent for file, _ in lying])
    return [
        name if file is None else (file.parent / name).as_posix().removeprefix(common)
        for file, name in zip(files, names, strict=True)
    ]


def _by_whole_name(name: str, file: Path | None) -> str:
    """A frame's name with the whole name of its video, `clip.avi_000000.jpg`; a picture's name is that of its file."""
    return name if file is None or name == file.name else f"{file.name}{name.removeprefix(file.stem)}"


def _common_folder(places: Sequence[Path]) -> str:
    """The folder common to all, with a final slash; empty if there is none, as on two drives of Windows."""
    try:
        return Path(os.path.commonpath(places)).as_posix().rstrip("/") + "/"
    except ValueError:
        return ""
