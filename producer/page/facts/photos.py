"""A photo of a job -> its bytes for a browser. Names come from the store's files, never from an address."""

from pathlib import Path
from typing import Final

from producer.audit.photo_sizes import photo_size, read_photo
from shared.errors import ImageError, PlanError
from shared.image_formats import ImageFormat
from shared.picture.header import read_header
from shared.storage import BucketFolder, DataFolder

MOST_PHOTO_BYTES: Final = 64 << 20
# The formats that browsers show.
_TYPES: Final[dict[ImageFormat, str]] = {
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "gif": "image/gif",
}


def shown_photo(folder: DataFolder, name: str, max_pixels: int) -> tuple[bytes, str]:
    """Content and media type of a photo.

    Raises:
        PlanError: It is gone, is not a file, is too large, or a link or its name leads out of the folder.
        ImageError: It is not a picture, or of a format that browsers do not show.
    """
    if not isinstance(folder, BucketFolder):
        _require_inside(folder, name)
    try:
        content = read_photo(folder, name)
    except OSError as error:
        raise PlanError(f"{name}: {error.strerror or 'it is gone'}") from error
    kind = read_header(content, max_pixels=max_pixels).format
    if kind not in _TYPES:
        raise ImageError(f"{name}: browsers do not show {kind.upper()}")
    return content, _TYPES[kind]


def shown_size(folder: DataFolder, name: str, max_pixels: int) -> tuple[int, int] | None:
    """Width and height of a photo as browsers show it, upright; None if it cannot be shown."""
    try:
        if not isinstance(folder, BucketFolder):
            _require_inside(folder, name)
        return photo_size(folder, name, max_pixels)
    except (PlanError, ValueError):
        return None


def _require_inside(folder: Path, name: str) -> None:
    """Raise a PlanError if `name`, after following links, is not a file in the folder, or is too large."""
    try:
        path = (folder / name).resolve(strict=True)
        is_ours = path.is_relative_to(folder.resolve()) and path.is_file()
        size = path.stat().st_size
    except (OSError, ValueError, RuntimeError) as error:
        raise PlanError(f"{name}: it is gone, or no file can have this name") from error
    if not is_ours or size > MOST_PHOTO_BYTES:
        raise PlanError(f"{name}: expected a photo in this folder of at most {MOST_PHOTO_BYTES >> 20} MB")
