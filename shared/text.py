"""Text from outside (names in XML, of files and folders, on the command line) -> text that stays on one line.

Every name passes two rules before it is kept or shown: white space is collapsed, and a character that controls a
terminal or breaks a line becomes its escape.
"""

import re
import unicodedata
from typing import Final

# Unicode's categories Cc (controls), Cs (lone surrogates: bytes that are not UTF-8), Zl and Zp (line and paragraph
# separators), to which no later version of Unicode will add. Joiners, direction marks and no-break spaces occur in real
# names and stay.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# How a file of a cloned repository begins if Git LFS has not fetched its content.
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


def printable(text: str) -> str:
    r"""`text` on one line and harmless to a terminal: control characters become escapes (`\x1b`, `\u2028`)."""
    # Nearly every text is printable, and this check takes a tenth of the time.
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def printable_lines(text: str) -> str:
    """`printable`, but line feeds stay: for our own texts of several lines that contain names."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def collapsed(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space, and none at its ends."""
    return " ".join(text.split())


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 shard`, `1,200 shards`, `2 boxes`: a number and its noun, whose plural has an s by default."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def composed(text: str) -> str:
    """`text` with each letter and its accents as one character, where Unicode has it (NFC).

    Text that looks the same is then equal: macOS and some keyboards write an accent as a character of its own.
    """
    return unicodedata.normalize("NFC", text)


def class_name(text: str) -> str:
    """The class that `text` means, wherever it comes from: XML, where it may span lines, or the command line."""
    return composed(one_line(text))  # compose last: an escape ends in a letter, which an accent may follow


def one_line(text: str) -> str:
    """`text` under the two rules of this module; its accents stay as they are written."""
    return printable(collapsed(text))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
