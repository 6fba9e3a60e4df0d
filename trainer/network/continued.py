"""A trained network's file -> a fresh network that continues it: all its weights, and its class columns by name."""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import keras
import numpy as np

from shared.errors import TrainingError
from shared.text import class_name

# Variables with a column for each class: kernels [1, 1, channels, classes] and biases [classes].
_BY_CLASS: Final = re.compile(r"scores_\d+_out/")


def go_on(
    fresh: keras.Model,
    file: Path,
    build: Callable[[int], keras.Model],
    *,
    before: Sequence[str],
    now: Sequence[str],
) -> keras.Model:
    """Load the weights of `file` into `fresh`.

    A class that both networks have keeps its weights, a new class starts as in a fresh network, and a class that is
    gone is left out. The file's own description of its network is not executed: only weights are read.

    Args:
        fresh: The network for the classes `now`, as `build` makes it.
        file: A `.keras` that this project wrote.
        build: Makes the network for a number of classes.
        before: The classes of the file's network.
        now: The classes of `fresh`.

    Returns:
        `fresh`.

    Raises:
        TrainingError: The file holds the weights of another network.
    """
    trained = build(len(before))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about containers; layers without weights raise an error
            trained.load_weights(file)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise TrainingError(f"--from {file.name}: expected the weights of {trained.name}; {reason}") from error
    known_names = [class_name(name) for name in before]  # older versions did not compose accents
    rows = [(place, known_names.index(name)) for place, name in enumerate(map(class_name, now)) if name in known_names]
    for ours, theirs in zip(fresh.variables, trained.variables, strict=True):
        values = theirs.numpy()
        if _BY_CLASS.match(ours.path):
            columns = np.array(ours.numpy())
            for place, known in rows:
                columns[..., place] = values[..., known]
            values = columns
        ours.assign(values)
    return fresh
