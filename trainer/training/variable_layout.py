"""A network -> which variable each part of its flat vectors is, by name, shape and type, for every checkpoint.

If two layers of equal size change places, no vector's length changes; only their names show it.
"""

from itertools import zip_longest
from typing import Literal

import keras

from shared.specs.frozen import SCHEMA_VERSION, Frozen


class NetworkVariable(Frozen):
    """One variable: its path in the network, such as `stem/kernel`, its shape and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """The variable for a person: `stem/kernel float32 [3, 3, 3, 16]`."""
        return f"{self.name} {self.dtype} {list(self.shape)}"


class Layout(Frozen):
    """The variables of a network in the order of `Learner.average`: trained weights, then statistics."""

    schema_version: Literal[1] = SCHEMA_VERSION
    variables: tuple[NetworkVariable, ...]

    def difference(self, expected: "Layout") -> str | None:
        """In words, the first variable that differs from the one in its place in `expected`; None if all agree."""
        for place, (found, wanted) in enumerate(zip_longest(self.variables, expected.variables)):
            if found != wanted:
                return f"variable {place} is {found or 'absent'}, expected {wanted or 'none'}"
        return None


def layout_of(network: keras.Model) -> Layout:
    """The variables of `network`, in the order in which `load_average` fills them."""
    variables = [*network.trainable_variables, *network.non_trainable_variables]
    return Layout(
        variables=tuple(
            NetworkVariable(name=variable.path, shape=tuple(variable.shape), dtype=str(variable.dtype))
            for variable in variables
        )
    )
