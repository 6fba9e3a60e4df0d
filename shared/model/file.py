"""A `.tflite` from anywhere -> its bytes and the files zipped to its end, all within size limits.

Sizes are checked before anything is read or unpacked, and reading stops at the limit too, because a stated size may be
a lie. Needs only the standard library.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shared.errors import ExportError

# The largest model that this project makes, `medium` in float32, has 19 MB.
MOST_MODEL_BYTES: Final = 128 * 2**20

# zipfile makes an object of every member in the directory: 45,000 fit into this, which takes 40 MB and 0.4 s. Ours has
# three members, and 0.9 MB with as many labels as are read.
MOST_ARCHIVE_BYTES: Final = 2 * 2**20

# Other compression methods have no bound on their memory (LZMA: a dictionary of up to 4 GB).
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_ENCRYPTED: Final = 0x1

# What zipfile raises for damaged archives.
ZIP_ERRORS: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, KeyError, OSError, RuntimeError, ValueError),
)

_IDENTIFIER: Final = b"TFL3"
# The signatures of a member, of a directory entry and of the end record.
_ZIP_MARKS: Final = (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06")

# How many characters of a text from the file an error quotes.
_MOST_QUOTED: Final = 120

_WHAT_TO_DO: Final = "take a file that voc2tflite exported, or export its run again (voc2tflite export RUN)"


def quoted(found: object) -> str:
    """A value from the file as an error may print it: as Python's repr, without control characters, not too long."""
    # A long text is cut first: its repr may be many times as long.
    text = repr(found[:_MOST_QUOTED] if isinstance(found, str) else found)
    is_cut = len(text) > _MOST_QUOTED or (isinstance(found, str) and len(found) > _MOST_QUOTED)
    return f"{text[:_MOST_QUOTED]}…" if is_cut else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """The bytes of a model, not yet trusted, and the name that errors give it."""

    name: str
    content: bytes

    @classmethod
    def read(cls, model: bytes | Path, name: str | None = None) -> "ModelFile":
        """Take a model's bytes, or read them; `name` is by default its path, quoted if it has unprintable characters.

        Raises:
            ExportError: It is not an ordinary file, cannot be read, or is larger than `MOST_MODEL_BYTES`.
        """
        if name is None:
            name = str(model) if isinstance(model, Path) else "model"
            name = name if name.isprintable() else ascii(name)
        file = cls(name=name, content=model if isinstance(model, bytes) else b"")
        if isinstance(model, Path):
            file = replace(file, content=file._read(model))
        if len(file.content) > MOST_MODEL_BYTES:
            found = f"{MOST_MODEL_BYTES + 1:,} bytes or more"
            raise file.refusal(found, f"at most {MOST_MODEL_BYTES:,}, seven times the largest that is made here")
        return file

    def check_identifier(self) -> None:
        """Refuse a file that does not begin as a TFLite flatbuffer.

        Raises:
            ExportError: Its bytes 4 to 7 are not `TFL3`.
        """
        if self.content[4:8] != _IDENTIFIER:
            found = "a zip, as model.keras is one" if self.content.startswith(b"PK") else "no TFLite file"
            raise self.refusal(found, f"a .tflite ({_IDENTIFIER.decode()} as its bytes 4 to 7)")

    def _read(self, path: Path) -> bytes:
        """The bytes at `path`, at most one more than is allowed."""
        try:
            # Reading a pipe would wait, and a device may never end.
            if not path.is_file():
                raise self.refusal("no such file, or not a regular one", "a .tflite")
            with open(path, "rb") as stream:
                return stream.read(MOST_MODEL_BYTES + 1)
        except OSError as error:
            raise self.refusal(f"it cannot be read ({error.strerror})", "a .tflite") from error

    def refusal(self, found: str, expected: str) -> ExportError:
        """The error for a file that is refused: what was found, what was expected, what to do, in one line."""
        return ExportError(f"{self.name}: {found}; expected {expected}; {_WHAT_TO_DO}")

    def members(self, limits: Mapping[str, int]) -> dict[str, bytes]:
        """Files of the archive after the model, by name; `limits` gives the most bytes that each may have.

        Raises:
            ExportError: There is no archive, it lacks one of the files, or one cannot be unpacked within its limit.
        """
        try:
            # Offsets in the directory count from the file's start; zipfile allows for the part cut off in front.
            with zipfile.ZipFile(io.BytesIO(self.content[-MOST_ARCHIVE_BYTES:])) as archive:
                return {name: unpacked_member(archive, name, most) for name, most in limits.items()}
        except ZIP_ERRORS as error:
            found = f"no voc2tflite description in it that can be read ({quoted(str(error))})"
            if not any(mark in self.content for mark in _ZIP_MARKS):
                found = "no voc2tflite description in it: another program made it, or it is cut short"
            expected = f"a .tflite with {' and '.join(sorted(limits))} zipped to its end"
            raise self.refusal(found, expected) from error


def unpacked_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The file `name` of an archive that anybody may have made.

    Raises:
        One of `ZIP_ERRORS`: It is absent, damaged, or larger than `most` bytes, or unpacking it has no bound on memory.
    """
    member = archive.getinfo(name)
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
        how = "is encrypted" if member.flag_bits & _ENCRYPTED else f"is packed by method {member.compress_type}"
        raise zipfile.BadZipFile(f"{name} {how}")
    if member.file_size > most:
        raise zipfile.BadZipFile(f"{name} unpacks to {member.file_size:,} bytes, at most {most:,} are read")
    with archive.open(member) as stream:
        # One byte beyond the limit: reading to the end checks the checksum, and the stated size may be a lie.
        content = stream.read(most + 1)
    if len(content) > most:
        raise zipfile.BadZipFile(f"{name} unpacks to more than {most:,} bytes")
    return content
