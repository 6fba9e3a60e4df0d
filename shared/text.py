"""Text from outside (names in XML, of files and folders, on the command line) -> text that stays on one line.

Every name passes two rules before it is kept or shown: white space is collapsed, and a character that controls a
terminal or breaks a line becomes its escape.
"""

import re
import unicodedata
from typing import Final

# Unicode's categories Cc (controls), Cs (lone surrogates: bytes that are not UTF-8), Zl and Zp (line and paragraph
# separators), which no later version of Unicode adds to. Joiners, marks of direction and no-break spaces are letters
# of real names and stay.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# What a file of a cloned repository begins with whose content Git LFS has not fetched.
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


def printable(text: str) -> str:
    r"""`text` on one line and harmless to a terminal: each control character as its escape (`\x1b`, `\u2028`)."""
    # Nearly every text is printable, and this check takes a tenth of the time.
    return text if text.isprintable() else _CONTROL.sub(_escape, text)


def printable_lines(text: str) -> str:
    """`printable`, but line feeds stay: for our own texts of several lines that have names in them."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def collapsed(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space, and none around it."""
    return " ".join(text.split())


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """`1 shard`, `1,200 shards`, `2 boxes`: a number and its noun, whose plural is with an s by default."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def composed(text: str) -> str:
    """`text` with each letter and its accents as one character, where Unicode has it (NFC).

    Text that looks the same is then equal: macOS and some keyboards write an accent as a character of its own.
    """
    return unicodedata.normalize("NFC", text)


def class_name(text: str) -> str:
    """The class that `text` means, wherever it was written: in XML over several lines, or on the command line."""
    return composed(one_line(text))  # last: an escape ends in a letter, which may take an accent


def one_line(text: str) -> str:
    """`text` by the two rules above; its accents stay as they are written."""
    return printable(collapsed(text))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
