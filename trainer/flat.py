"""A `.tflite` as LiteRT's schema classes → its bytes, aligned as the kernels rely on."""

from typing import Any, Final

import flatbuffers
import numpy as np

_FILE_IDENTIFIER: Final = b"TFL3"


def packed(tree: Any) -> bytes:
    """The flatbuffer of a `ModelT`."""
    builder = _AlignedBuilder(1 << 20)
    builder.Finish(tree.Pack(builder), _FILE_IDENTIFIER)
    return bytes(builder.Output())


class _AlignedBuilder(flatbuffers.Builder):  # type: ignore[misc]  # flatbuffers ships no types
    """Aligns byte vectors to 16: the schema's `force_align`, which the Python object API forgets.

    Kernels read weights in place and rely on it.
    """

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802 - the library's name
        if x.dtype != np.uint8:
            return int(super().CreateNumpyVector(x))
        return _aligned_bytes(self, x.tobytes())


def _aligned_bytes(builder: Any, content: bytes) -> int:
    builder.StartVector(1, len(content), 16)
    builder.head -= len(content)
    builder.Bytes[builder.head : builder.head + len(content)] = content
    return int(builder.EndVector())
