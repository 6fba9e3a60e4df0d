"""Commands that the page shows -> as they work in whatever folder a person pastes them."""

import shlex
from pathlib import Path

from shared.command import PROGRAM, hint, program
from shared.storage import Storage


def rooted(command: str, storage: Storage) -> str:
    """A command about this very store: `STORE`, as reports write it, and a relative path of it or of the program.

    Args:
        command: As `hint` or a report has it, quoted for a shell; one that cannot be read stays as it is.
        storage: The store that is meant.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    words = [_in_store(word, storage.root) for word in words]
    words = [storage.root if before == "--store" else word for before, word in zip(["", *words], words, strict=False)]
    if words[:1] == [PROGRAM]:
        words[:1] = program()
    if words and "/" in words[0]:
        words[0] = str(Path(words[0]).absolute())
    return shlex.join(words)


def hint_here(storage: Storage, *arguments: object) -> str:
    """`hint` of a command that takes `--store`, with this store, whatever the settings of the terminal are."""
    return rooted(hint(*arguments, "--store", storage.root), storage)


def _in_store(word: str, root: str) -> str:
    return root + word.removeprefix("STORE") if word.split("/")[0] == "STORE" else word
