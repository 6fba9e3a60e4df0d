"""`Tensor`: what TensorFlow and Keras compute with. Neither library is typed, so mypy takes it for anything.

And the two labels of a batch's boxes that are no class.
"""

from typing import Any, Final, TypeAlias

# A TensorFlow tensor or variable, eager or in a graph, or a Keras symbolic tensor; docstrings say shape and dtype.
Tensor: TypeAlias = Any

# The label of a row without a box, and that of an object that is neither learned nor punished (`--difficult ignore`).
PADDING: Final = -1
IGNORED: Final = -2
