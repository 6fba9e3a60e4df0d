"""A checkpoint in torch's format before 1.6 -> arrays by name, without torch and without running any code in it.

The format (torch/serialization.py, `_legacy_load`): five pickles one after another (magic number, protocol, sizes of
types, the named tensors, the keys of their storages), then each storage as its length, int64, and its numbers. A tensor
is a view into a storage: offset, shape and strides, all counted in numbers. A pickle may ask for any Python function to
be called; here only the few that such a file needs are allowed, and torch's are replaced by our own.
"""

import io
import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import TrainingError

_MAGIC: Final = 0x1950A86A20F9469CFC6C
_PROTOCOL: Final = 1001
_STORAGES: Final = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor: its storage and its place in that, counted in numbers."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Unpickler(pickle.Unpickler):  # `find_class` is what makes pickles dangerous, so it is replaced here
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no checkpoint needs")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _, count, _ = pid
        return _Storage(key=str(key), dtype=np.dtype(dtype), count=int(count))


def read_checkpoint(content: bytes, file: str) -> dict[str, NDArray[Any]]:
    """The named tensors of a checkpoint.

    Args:
        content: The file's bytes.
        file: Its name, for errors.

    Returns:
        Arrays with torch's shapes (a convolution's kernels are [out, in, height, width]), float32 or int64.

    Raises:
        TrainingError: It is not such a file, is cut short, or asks for code to be run.
    """
    try:
        return _read(io.BytesIO(content))
    # Any exception: a hostile pickle may raise whatever it likes.
    except Exception as error:
        raise TrainingError(f"{file}: expected a torch checkpoint of named tensors, found none: {error}") from error


def _read(stream: io.BytesIO) -> dict[str, NDArray[Any]]:
    magic, protocol = _Unpickler(stream).load(), _Unpickler(stream).load()
    if (magic, protocol) != (_MAGIC, _PROTOCOL):
        raise ValueError("it does not begin with torch's magic number")
    _Unpickler(stream).load()  # sizes of types, which say nothing about what is stored
    views: dict[str, _View] = dict(_Unpickler(stream).load())
    storages = {view.storage.key: view.storage for view in views.values()}
    numbers = {str(key): _read_storage(stream, storages[str(key)]) for key in _Unpickler(stream).load()}
    return {str(name): _as_array(str(name), view, numbers[view.storage.key]) for name, view in views.items()}


def _view(storage: _Storage, offset: int, shape: Sequence[int], strides: Sequence[int], *_: Any) -> _View:
    return _View(storage=storage, offset=int(offset), shape=tuple(shape), strides=tuple(strides))


def _read_storage(stream: io.BytesIO, storage: _Storage) -> NDArray[Any]:
    (count,) = struct.unpack("<q", stream.read(8))
    content = stream.read(storage.dtype.itemsize * storage.count)
    if count != storage.count or len(content) != storage.dtype.itemsize * count:
        raise ValueError(f"storage {storage.key} holds {len(content)} bytes, expected {storage.count} numbers")
    return np.frombuffer(content, storage.dtype)


def _as_array(name: str, view: _View, numbers: NDArray[Any]) -> NDArray[Any]:
    reach = sum((side - 1) * stride for side, stride in zip(view.shape, view.strides, strict=True))
    is_inside = min((view.offset, *view.strides, *view.shape)) >= 0 and view.offset + reach < numbers.size
    if not is_inside or math.prod(view.shape) > numbers.size:
        raise ValueError(f"{name} of shape {view.shape} leaves its storage of {numbers.size} numbers")
    strides = [stride * numbers.itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(numbers[view.offset :], view.shape, strides).copy()
