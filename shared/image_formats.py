"""The picture formats that this project reads, and the extensions that promise them.

OpenCV decodes all but HEIF, for which `pillow-heif` must be installed. The bytes of a file decide its format; the
extension only says that it is meant as a picture.
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
    """The format that the extension of a file's name promises; None where it promises none."""
    return IMAGE_EXTENSIONS.get(splitext(name)[1].lower())
