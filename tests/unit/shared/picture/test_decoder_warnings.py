"""Standard error is heard while a picture is decoded, and nobody else's words are lost."""

import gc
import os
import subprocess
import sys

import psutil
import pytest

from shared.picture.decoder_warnings import decoder_warnings

PADDING = b"Corrupt JPEG data: %d extraneous bytes before marker 0xd9"
JPEG = b"\xff\xd8 scan " + bytes(20) + b"\xff\xd9"


@pytest.mark.parametrize(
    ("said", "damage"),
    [
        (b"", None),
        (b"Corrupt JPEG data: premature end of data segment\n", "Corrupt JPEG data: premature end of data segment"),
        (b"Corrupt JPEG data: bad Huffman code", "Corrupt JPEG data: bad Huffman code"),
        (PADDING % 21, (PADDING % 21).decode()),
        (PADDING % 20, None),
        (b"Corrupt JPEG data: bad ICC marker\n", None),
        (b"Warning: unknown JFIF revision number 2.01\n", None),
        (b"[ WARN:0@0.9] global grfmt_tiff.cpp:123 TIFF_Warning TIFFReadDirectory: odd tag\n", None),
    ],
)  # fmt: skip
def test_notes_tell_damage_from_oddities(said: bytes, damage: str | None) -> None:
    with decoder_warnings() as notes:
        os.write(2, said)
    assert notes.damage(JPEG) == damage


def test_words_of_others_reach_standard_error_and_the_decoders_do_not() -> None:
    code = (
        "import os\nfrom shared.picture.decoder_warnings import decoder_warnings\n"
        "with decoder_warnings():\n"
        '    os.write(2, b\'{"event": "lease_renewed"}\\nCorrupt JPEG data: bad Huffman code\\n\')\n'
        "os.write(2, b'after\\n')\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert finished.stderr == b'{"event": "lease_renewed"}\nafter\n'


def test_descriptors_are_given_back_even_when_the_block_raises() -> None:
    gc.collect()  # descriptors of tests before this one go now, not in between
    before = psutil.Process().num_fds()
    for _ in range(50):
        with pytest.raises(ValueError, match="x"), decoder_warnings():
            raise ValueError("x")
    assert psutil.Process().num_fds() == before
