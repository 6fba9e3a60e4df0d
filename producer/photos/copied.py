"""The note in a copy of a data set: when each original photo had last changed, and classes that the original had.

A copied file is new to its file system. Without the note no shard could be reused for it, though its bytes are equal;
and a class that was corrected away would make an option that names it look like a typing mistake.
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

# Begins with a dot, so that nobody takes it for a photo or a list.
NOTE: Final = ".voc2tflite-copy.json"


class CopiedPhotos:
    """What the note of a folder says; nothing if the note is absent or damaged."""

    def __init__(self, folder: Path) -> None:
        try:
            found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        photos = found.get("photos") if isinstance(found, dict) else None
        self._photos: Mapping[str, object] = photos if isinstance(photos, dict) else {}
        names = found.get("names") if isinstance(found, dict) else None
        self.names = (
            frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()
        )

    def changed_at(self, path: str, stat: os.stat_result) -> float:
        """When a photo last changed, in seconds of Unix time: the original's time unless the copy changed since."""
        match self._photos.get(path):
            case [int(copied_ns), int(changed_ns)] if copied_ns == stat.st_ctime_ns:
                return changed_ns / 1e9
        return stat.st_ctime


def write_note(folder: Path, changed_ns: Mapping[str, int], names: Collection[str]) -> None:
    """Write the note of a copy in `folder`.

    Args:
        folder: The copy.
        changed_ns: The times of change of the originals, by relative path.
        names: The classes that the original had and options name.
    """
    photos = {path: [(folder / path).stat().st_ctime_ns, at] for path, at in sorted(changed_ns.items())}
    # ASCII, because names that are not UTF-8 are copied too, although no job uses those files.
    (folder / NOTE).write_text(json.dumps({"photos": photos, "names": sorted(names)}), encoding="ascii")
