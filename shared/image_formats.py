"""The picture formats that this project reads, and their file extensions.

OpenCV decodes all but HEIF, for which `pillow-heif` must be installed. A file's bytes decide its format; the extension
only says that it is meant to be a picture.
"""

from posixpath import splitext
from typing import Final, Literal

ImageFormat = Literal["jpeg", "png", "webp", "bmp", "gif", "tiff", "heif"]

IMAGE_EXTENSIONS: Final[dict[str, ImageFormat]] = {
    **dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "jpeg"),
    ".png": "png",
    ".webp": "webp",
    **dict.fromkeys((".bmp", ".dib"), "bmp"),
    ".gif": "gif",
    **dict.fromkeys((".tif", ".tiff"), "tiff"),
    **dict.fromkeys((".heic", ".heif"), "heif"),
}


def format_of(name: str) -> ImageFormat | None:
    """The format that a file name's extension stands for; None if it is not one of a picture."""
    return IMAGE_EXTENSIONS.get(splitext(name)[1].lower())
