"""What the C decoders write to standard error while they decode, and what it means for the picture.

libjpeg goes on decoding after damaged scan data and says so only there (so does libtiff). OpenCV passes on neither, and
a second, strict decoder would double the cost. Source of the texts: libjpeg's jerror.h, the JWRN_ messages; only the
first one of a picture is printed.
"""

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Damaged scan data: what was decoded after it is gray, shifted or of another colour.
_DAMAGE: Final = re.compile(
    rb"Corrupt JPEG data: (?!bad ICC)[^\n]*|Premature end of JPEG file|Inconsistent progression sequence[^\n]*"
    rb"|Invalid SOS parameters[^\n]*|[^\n]*TIFF_Error[^\n]*"
)
# Cameras pad the scan with zeros before the end marker; libjpeg calls these bytes extraneous, the picture is whole.
_PADDING: Final = re.compile(rb"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9")
# Written by a decoder, and of no interest in the log of this process.
_DECODER: Final = re.compile(
    rb"Corrupt JPEG|Premature end|Warning: unknown JFIF|Inconsistent prog|Invalid SOS|Unknown Adobe|libpng |\[ ?WARN:"
    rb"|\[ERROR:|\s*$"
)

# What libjpeg says of data that ends too early, and nothing else.
_ENDED: Final = re.compile(r"Premature end of JPEG file|Corrupt JPEG data: premature end of data segment")

# The descriptor of standard error belongs to the process, so one thread decodes at a time.
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
    """Whether `damage` says that the data ends too early; what came before is whole then."""
    return _ENDED.fullmatch(damage) is not None


@contextmanager
def decoder_warnings() -> Iterator[DecoderWarnings]:
    """Collect what is written to descriptor 2 inside the block, and pass on what no decoder wrote.

    Costs about 15 µs (tests/bench/picture_stage.py). A log line of another thread may be caught; it is written to
    the true standard error when the block ends.
    """
    warnings = DecoderWarnings()
    with _tap:
        # A file for each picture: forked workers would share the position in a common one, and mix their warnings.
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
