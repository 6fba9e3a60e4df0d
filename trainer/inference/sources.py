"""Paths, camera index, video file -> pictures, and a message about each file that is not one."""

import mimetypes
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from shared.errors import ImageError
from shared.image_formats import format_of
from shared.picture import cut_short, heif, tiff
from shared.picture.decoder_warnings import decoder_warnings
from shared.picture.header import read_header
from shared.picture.pixels import to_bgr, turn_pixels
from shared.specs.data import JobSpec
from shared.text import counted, printable

# Videos whose header has the number of frames. A video is whole from this share on, as some cameras are off by one or
# two frames.
_COUNTED: Final = (".avi", ".mp4", ".m4v", ".mov")
_WHOLE_FROM: Final = 0.98
# Frames per second if a camera or a video does not give a credible number.
_USUAL_FPS: Final = 25.0
_MOST_FPS: Final = 240.0

_MOST_PIXELS: Final = JobSpec().max_pixels
# The most pixels that OpenCV itself decodes.
_MOST_DECODED: Final = 2**30
_LOOKED_AT: Final = 1024
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A picture to look at: `pixels` is uint8 [H, W, 3], BGR; `video` is the name of its video or camera, if any.

    `place` says which frame of that it is; `path` is the file of a picture or video, None for a camera.
    """

    name: str
    pixels: NDArray[np.uint8]
    path: Path | None = None
    video: str | None = None
    fps: float = _USUAL_FPS
    is_first: bool = True
    place: str = ""

    @property
    def shown(self) -> str:
        """How it is named to a person: a video's frame has no file, so it is named by its place."""
        return self.place or self.name


def frames(
    source: str, limit: int | None = None, tell: Callable[[str], None] = lambda _: None, *, every: int = 1
) -> Iterator[Frame]:
    """The pictures behind one argument of `predict`.

    Args:
        source: A picture, a folder of pictures, a video file, or the index of a camera ("0").
        limit: The most frames that are taken from a video or camera.
        tell: Called with a line about each picture or video that ends too early or, in a folder, cannot be read.
        every: Only the first of this many frames of a video or camera is taken.

    Raises:
        ImageError: There is no such file or camera, or it cannot be read as a picture or video.
    """
    path = Path(source)
    if path.is_dir():
        yield from _pictures(path, tell)
    elif path.is_file() and (pixels := _picture(path, tell)) is not None:
        yield Frame(name=path.name, pixels=pixels, path=path)
    elif path.is_file() or source.isdecimal():
        yield from islice(_moving(source, tell, every), limit)
    elif "://" in source:
        raise ImageError(f"{source}: expected a picture, a folder, a video or a camera here, found a URL: copy it here")
    else:
        raise ImageError(f"{source}: no such picture, folder, video or camera")


def _pictures(folder: Path, tell: Callable[[str], None]) -> Iterator[Frame]:
    """The pictures in a folder, by name. Hidden files, videos and files that are no pictures are skipped."""
    children = sorted(child for child in folder.iterdir() if not child.name.startswith("."))
    is_bare = True
    for child in children:
        if not child.is_file() or _is_video(child.name):  # a video may be larger than the memory
            continue
        try:
            pixels = _picture(child, tell)
        except ImageError as error:
            if format_of(child.name) is not None:
                tell(f"skipped {error}")
            continue
        if pixels is not None:
            is_bare = False
            yield Frame(name=child.name, pixels=pixels, path=child)
    left = _left(children)
    if left:
        tell(f"{folder}: {'no picture directly in it; ' if is_bare else ''}not looked at: {left}")


def _left(children: Sequence[Path]) -> str:
    """A line about what is skipped in a folder although there may be pictures in it; "" if nothing is."""
    kinds = {
        "folder": [child for child in children if child.is_dir()],
        "video": [child for child in children if child.is_file() and _is_video(child.name)],
        "broken link": [child for child in children if child.is_symlink() and not child.exists()],
    }
    told = [
        f"{counted(len(found), kind)} ({found[0]}{' …' if len(found) > 1 else ''})"
        for kind, found in kinds.items()
        if found
    ]
    named = "; a folder or video is looked at where it is named itself" if kinds["folder"] or kinds["video"] else ""
    return f"{', '.join(told)}{named}" if told else ""


def _is_video(name: str) -> bool:
    return (mimetypes.guess_type(name)[0] or "").startswith("video/")


def _picture(path: Path, tell: Callable[[str], None]) -> NDArray[np.uint8] | None:
    """The picture, uint8 [H, W, 3], BGR, upright; None if the file may be a video.

    Raises:
        ImageError: It cannot be read, or is neither.
    """
    try:
        # Not imread, which cannot open names with letters outside the system's code page (Windows).
        content = path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    pixels = decode_picture(content, str(path), tell)
    if pixels is None and (format_of(path.name) is not None or _is_text(content)):
        raise ImageError(f"{path}: {_found(path, content)}")
    return pixels


def decode_picture(content: bytes, shown: str, tell: Callable[[str], None]) -> NDArray[np.uint8] | None:
    """The picture in the bytes of a file, uint8 [H, W, 3], BGR, upright; None if they are not one, or it is damaged.

    Args:
        content: The bytes.
        shown: How errors name them.
        tell: Called with a line about a picture that ends too early.

    Raises:
        ImageError: It is empty, ends much too early, or is HEIC that cannot be read.
    """
    if not content:
        raise ImageError(f"{shown}: an empty file")
    if heif.is_heif(content):  # an ISO media file of another brand is a video
        try:
            return heif.decode(content)
        except ImageError as error:
            raise ImageError(f"{shown}: {error}") from error
    with decoder_warnings():
        pixels = _decoded(content)
    if pixels is None and (closed := _closed(content)) is not None:
        found = f"{shown}: {cut_short.told(closed.rows)}"
        if closed.rows < cut_short.KEPT_FROM:
            raise ImageError(f"{found}, at least {100 * cut_short.KEPT_FROM:g} % are needed; copy it anew")
        tell(f"{found}, and are looked at")
        with decoder_warnings():
            return _decoded(closed.content)
    return pixels


def _decoded(content: bytes) -> NDArray[np.uint8] | None:
    buffer = np.frombuffer(content, np.uint8)
    try:
        try:
            header = read_header(content, max_pixels=_MOST_DECODED)
        except ImageError:  # a format that shards do not support, but OpenCV may
            header = None
        if header is None or header.format == "jpeg":
            return cv2.imdecode(buffer, cv2.IMREAD_COLOR)  # type: ignore[return-value]  # 8 bit
        if header.format == "tiff":
            buffer = np.frombuffer(tiff.upright_copy(content), np.uint8)
        # With alpha, if there is any; with this flag OpenCV does not turn the picture.
        pixels = cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
        return None if pixels is None else turn_pixels(to_bgr(content, header, pixels), header.orientation)
    except (cv2.error, ImageError):  # more pixels than OpenCV decodes, or unsupported samples
        return None


def _closed(content: bytes) -> cut_short.Closed | None:
    """A picture that ends too early, with its end added as by `--damaged keep`; None if it is damaged otherwise."""
    try:
        return cut_short.close(content, read_header(content, max_pixels=_MOST_PIXELS))
    except ImageError:
        return None


def _is_text(content: bytes) -> bool:
    """Whether a file is text, from which FFmpeg would make a video."""
    start = content[:_LOOKED_AT]
    return b"\0" not in start and len(start.decode(errors="ignore").encode()) >= len(start) - 3


def _found(path: Path, content: bytes) -> str:
    """What a file is instead of a picture."""
    if _is_text(content):
        line = printable(content[:_LOOKED_AT].decode(errors="ignore").split("\n", 1)[0].strip())
        return f"text ({line[:_SHOWN]!r}); expected a picture, a folder or a video"
    return f"damaged, or no {format_of(path.name)}: it cannot be decoded"


def _moving(source: str, tell: Callable[[str], None], every: int) -> Iterator[Frame]:
    is_camera = source.isdecimal() and not Path(source).is_file()
    capture = _opened(int(source) if is_camera else source)
    try:
        if not capture.isOpened():
            raise ImageError(
                _absent_camera(source) if is_camera else f"{source}: neither a picture nor a video that OpenCV reads"
            )
        name, told = f"camera{source}" if is_camera else Path(source).stem, capture.get(cv2.CAP_PROP_FPS)
        known: dict[str, Any] = {"video": name, "path": None if is_camera else Path(source)}
        fps = (float(told) if 1 <= told <= _MOST_FPS else _USUAL_FPS) / every
        for index in count():
            is_read, pixels = (capture.grab(), None) if index % every else capture.read()
            if not is_read and index == 0:
                raise ImageError(_without_a_frame(source, is_camera=is_camera))
            if not is_read:
                if not is_camera:
                    _tell_cut(source, index, capture.get(cv2.CAP_PROP_FRAME_COUNT), tell)
                return
            if pixels is None:
                continue
            shown = pixels.astype(np.uint8, copy=False)
            place = f"{name if is_camera else Path(source).name}, frame {index + 1}"
            frame = f"{name}_{index:06d}.jpg"
            yield Frame(name=frame, pixels=shown, fps=fps, is_first=index == 0, place=place, **known)
    finally:
        capture.release()


def _tell_cut(source: str, read: int, promised: float, tell: Callable[[str], None]) -> None:
    """Report a video with fewer frames than its header promises; FFmpeg ends there without a message."""
    # For other kinds OpenCV computes the number from the duration, which is wrong if frames have unequal lengths.
    if Path(source).suffix.lower() in _COUNTED and read < _WHOLE_FROM * promised:
        found = f"{read:,} of the {counted(round(promised), 'frame')} that its header promises can be read"
        tell(f"{source}: {found}; if nobody has trimmed it, it ends too early or is damaged: copy it again")


def _opened(source: int | str) -> cv2.VideoCapture:
    """Open a video or camera silently: OpenCV and FFmpeg print several lines for what our error says in one."""
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    before = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    try:
        return cv2.VideoCapture(source)
    finally:
        # Restored, because the decoders of pictures report damage only in this log.
        cv2.utils.logging.setLogLevel(before)


def _without_a_frame(source: str, *, is_camera: bool) -> str:
    if is_camera:
        return f"camera {source}: it opens, but gives no picture: does another program use it?"
    return f"{source}: a video without a frame that OpenCV reads"


def _absent_camera(index: str) -> str:
    there = sorted(path.name.removeprefix("video") for path in Path("/dev").glob("video*"))
    found = f"there is {', '.join(there)}" if there else "none is there"
    return f"camera {index}: it cannot be opened; {found}: plug one in, or name a picture, a folder or a video"
