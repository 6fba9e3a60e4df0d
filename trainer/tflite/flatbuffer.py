"""A `.tflite` as LiteRT's schema classes -> its bytes, aligned as the kernels need."""

from typing import Any, Final

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

_FILE_IDENTIFIER: Final = b"TFL3"


def serialize(tree: schema.ModelT) -> bytes:
    """The flatbuffer of a `ModelT`."""
    builder = _AlignedBuilder(1 << 20)
    builder.Finish(tree.Pack(builder), _FILE_IDENTIFIER)
    return bytes(builder.Output())


def add_buffer(tree: schema.ModelT, content: bytes) -> int:
    """Append `content` to the buffers of a `ModelT`; returns its index."""
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(content, np.uint8)
    tree.buffers.append(buffer)
    return len(tree.buffers) - 1


def operator_kinds(tree: schema.ModelT) -> list[int]:
    """The `BuiltinOperator` of each operator code; files from before 2020 have it only in the deprecated field."""
    return [max(code.builtinCode, code.deprecatedBuiltinCode) for code in tree.operatorCodes]


class _AlignedBuilder(flatbuffers.Builder):  # type: ignore[misc]  # flatbuffers ships no types
    """Aligns byte vectors to 16 bytes, as the schema's `force_align` demands and the Python object API forgets.

    Kernels read weights in place and rely on this.
    """

    def CreateNumpyVector(self, x: Any) -> int:  # noqa: N802 - the library's name
        if x.dtype != np.uint8:
            return int(super().CreateNumpyVector(x))
        self.StartVector(1, x.size, 16)
        self.head -= x.size
        self.Bytes[self.head : self.head + x.size] = x.tobytes()
        return int(self.EndVector())
