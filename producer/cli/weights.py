"""A file of weights -> a key of the store that every trainer can read."""

import hashlib
from pathlib import Path

from shared.errors import OptionError
from shared.storage import Storage


def stored_weights(weights: str, storage: Storage) -> str:
    """`none` and `imagenet` as they are; a file's key in the store, where it is put for the trainers.

    Raises:
        OptionError: There is no such file, or Keras would not know its form.
    """
    if weights in ("none", "imagenet"):
        return weights
    path = Path(weights)
    if not path.is_file():
        raise OptionError(f"--weights {weights}: expected none, imagenet or a file, found no such file")
    if not path.name.endswith((".h5", ".keras")):
        raise OptionError(f"--weights {weights}: expected a Keras weights file (.h5, .weights.h5 or .keras)")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    storage.make_root()
    key = f"weights/{digest}-{path.name.removeprefix(f'{digest}-')}"  # the file may be one of a store's
    storage.create(key, content)
    return key
