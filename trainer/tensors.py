"""`Tensor`: what TensorFlow and Keras compute with. Neither library is typed, so mypy takes it for anything."""

from typing import Any, TypeAlias

# A TensorFlow tensor or variable, eager or in a graph, or a Keras symbolic tensor; docstrings say shape and dtype.
Tensor: TypeAlias = Any
