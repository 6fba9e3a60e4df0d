"""What the C decoders write to standard error while they decode, and what it means for the picture.

libjpeg and libtiff go on decoding after damaged data and say so only on standard error. OpenCV does not pass this on,
and a second, strict decoder would double the cost. Source of the texts: the JWRN_ messages in libjpeg's jerror.h; only
the first one of a picture is printed.
"""

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Damaged scan data: whatever was decoded after it is gray, shifted or in the wrong colour.
_DAMAGE: Final = re.compile(
    rb"Corrupt JPEG data: (?!bad ICC)[^\n]*|Premature end of JPEG file|Inconsistent progression sequence[^\n]*"
    rb"|Invalid SOS parameters[^\n]*|[^\n]*TIFF_Error[^\n]*"
)
# Cameras pad the scan with zeros before the end marker; libjpeg calls these bytes extraneous, but the picture is whole.
_PADDING: Final = re.compile(rb"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9")
# Lines that a decoder writes; they do not belong in the log of this process.
_DECODER: Final = re.compile(
    rb"Corrupt JPEG|Premature end|Warning: unknown JFIF|Inconsistent prog|Invalid SOS|Unknown Adobe|libpng |\[ ?WARN:"
    rb"|\[ERROR:|\s*$"
)

# What libjpeg says if data ends too early, and only then.
_ENDED: Final = re.compile(r"Premature end of JPEG file|Corrupt JPEG data: premature end of data segment")

# The descriptor of standard error belongs to the whole process, so one thread decodes at a time.
_tap: Final = threading.Lock()


class DecoderWarnings:
    """What was caught; filled when the block of `decoder_warnings` ends."""

    text: bytes = b""

    def damage(self, content: bytes) -> str | None:
        """The damage that the decoder of `content` reported, or None."""
        found = _DAMAGE.search(self.text)
        if found is None:
            return None
        padding = _PADDING.fullmatch(found[0])
        if padding is not None and _is_zero_padded(content, int(padding[1])):
            return None
        return found[0].decode(errors="replace").strip()


def is_end(damage: str) -> bool:
    """Whether `damage` says that the data ends too early, in which case everything before is whole."""
    return _ENDED.fullmatch(damage) is not None


@contextmanager
def decoder_warnings() -> Iterator[DecoderWarnings]:
    """Collect what is written to descriptor 2 inside the block, and pass on the lines that no decoder wrote.

    Costs about 15 µs (tests/bench/picture_stage.py). A log line of another thread may be caught too; it is written to
    the real standard error when the block ends.
    """
    warnings = DecoderWarnings()
    with _tap:
        # A file for each picture: forked workers would share the position of a common one and mix their warnings.
        caught = _open_memory()
        saved = os.dup(2)
        os.dup2(caught, 2)
        try:
            yield warnings
        finally:
            os.dup2(saved, 2)
            size = os.lseek(caught, 0, os.SEEK_END)
            if size:
                warnings.text = os.pread(caught, size, 0)
                others = [line for line in warnings.text.splitlines(keepends=True) if not _DECODER.match(line)]
                os.write(saved, b"".join(others))
            os.close(saved)
            os.close(caught)


def _open_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("decoder-warnings")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _is_zero_padded(content: bytes, extraneous: int) -> bool:
    """Whether the `extraneous` bytes before the end marker are all zero."""
    end = content.rfind(b"\xff\xd9")
    return end >= extraneous and not any(content[end - extraneous : end])
