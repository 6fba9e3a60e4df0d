"""The note in a copy of a data set that says when each photo had last changed where it was copied from.

A copied file is new to its file system. Without the note no shard could be reused for it, though its bytes are equal.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

# Begins with a dot, so that nobody takes it for a photo or a list.
NOTE: Final = ".voc2tflite-copy.json"


class CopiedPhotos:
    """What the note of a folder says; of one without a note, or with a damaged one, nothing."""

    def __init__(self, folder: Path) -> None:
        try:
            found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        photos = found.get("photos") if isinstance(found, dict) else None
        self._photos: Mapping[str, object] = photos if isinstance(photos, dict) else {}

    def changed_at(self, path: str, stat: os.stat_result) -> float:
        """When a photo last changed, in seconds of Unix time: before it was copied, if not since."""
        match self._photos.get(path):
            case [int(copied_ns), int(changed_ns)] if copied_ns == stat.st_ctime_ns:
                return changed_ns / 1e9
        return stat.st_ctime


def write_note(folder: Path, changed_ns: Mapping[str, int]) -> None:
    """Write the note of a copy in `folder`; `changed_ns` are the times of change of the originals, by relative path."""
    photos = {path: [(folder / path).stat().st_ctime_ns, at] for path, at in sorted(changed_ns.items())}
    (folder / NOTE).write_text(json.dumps({"photos": photos}, ensure_ascii=False), encoding="utf-8")
