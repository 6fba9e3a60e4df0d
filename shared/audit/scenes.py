"""Paths of photos -> which of them show one scene, as their names tell. Pure."""

import re
from typing import Final

from shared.text import composed

# Roboflow names its augmented copies `photo_jpg.rf.<hash>`.
_COPY_MARK: Final = re.compile(r"(?:_(?:jpe?g|png|bmp|webp|tiff?))?\.rf\.[0-9A-Za-z]+$", re.IGNORECASE)


def scene_of(image: str, group_by: str | None) -> str:
    """The same text for photos of one scene: what `--group-by` finds in their paths, or the photo they are copies of.

    It is empty where the name does not say of which scene a photo is.
    """
    path = image[: image.rfind(".")]
    whole = _COPY_MARK.sub("", path)
    match = re.search(composed(group_by), composed(whole)) if group_by else None
    found = "/".join(part or "" for part in match.groups() or (match[0],)) if match else ""
    return found or (whole.rpartition("/")[2] if whole != path else "")
