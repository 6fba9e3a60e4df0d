"""`Tensor`: the type of what TensorFlow and Keras compute with; as neither is typed, mypy treats it as Any.

Also the two labels of a batch's boxes that are not classes.
"""

from typing import Any, Final, TypeAlias

# A TensorFlow tensor or variable, eager or in a graph, or a Keras symbolic tensor; docstrings say shape and dtype.
Tensor: TypeAlias = Any

# The label of a row without a box, and that of an object that is neither learned nor punished (`--difficult ignore`).
PADDING: Final = -1
IGNORED: Final = -2
