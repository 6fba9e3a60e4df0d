"""Paths of photos -> which of them show the same scene, as far as their names tell."""

import re
from typing import Final

from shared.text import composed

# Roboflow names its augmented copies `photo_jpg.rf.<hash>`.
_COPY_MARK: Final = re.compile(r"(?:_(?:jpe?g|png|bmp|webp|tiff?))?\.rf\.[0-9A-Za-z]+$", re.IGNORECASE)


def source_stem(image: str) -> str:
    """The stem of the photo that `image` was made from: `a/photo_jpg.rf.0f3c.jpg` gives `photo`."""
    return _source_path(image).rpartition("/")[2]


def is_copy(image: str) -> bool:
    """Whether the name says that the photo was made from another one."""
    return _source_path(image) != _without_extension(image)


def group_of(image: str, group_by: str) -> str:
    """What the regular expression `group_by` finds in the path: its groups, or the whole match; "" if nothing.

    The path is without the extension and what Roboflow adds, and its accents are composed.
    """
    match = re.search(composed(group_by), composed(_source_path(image)))
    return "/".join(part or "" for part in match.groups() or (match[0],)) if match else ""


def scene_of(image: str, group_by: str | None) -> str:
    """A text that is the same for photos of one scene: their group, or else the photo that they are copies of.

    It is empty if the name does not say which scene a photo shows.
    """
    group = group_of(image, group_by) if group_by else ""
    return group or (source_stem(image) if is_copy(image) else "")


def _source_path(image: str) -> str:
    return _COPY_MARK.sub("", _without_extension(image))


def _without_extension(image: str) -> str:
    return image[: image.rfind(".")]
