import io
import pickle
import struct
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from shared.errors import TrainingError
from trainer.network.torch_checkpoint import read_checkpoint

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class Global:
    """Pickled as a name of another module, which need not exist here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Tensor:
    def __init__(self, key: str, count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> None:
        self.key, self.count, self.shape, self.strides, self.offset = key, count, shape, strides, offset


class Called:
    """Pickled as a call of whatever the file's author likes."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


_PurePython: Any = pickle._Pickler  # the one in C cannot be taught a new kind


class Pickler(_PurePython):  # type: ignore[misc]  # untyped
    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if isinstance(value, Global):
            self.write(f"c{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Tensor):
            self.save(Global("torch._utils", "_rebuild_tensor_v2"))
            storage = Stored(value.key, value.count)
            self.save((storage, value.offset, value.shape, value.strides, False, OrderedDict()))
            self.write(pickle.REDUCE)
        else:
            super().save(value, save_persistent_id)

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Stored):
            return ("storage", Global("torch", "FloatStorage"), value.key, "cpu", value.count, None)
        return None


class Stored:
    def __init__(self, key: str, count: int) -> None:
        self.key, self.count = key, count


def checkpoint(tensors: dict[str, Any], numbers: dict[str, np.ndarray], magic: int = MAGIC) -> bytes:
    stream = io.BytesIO()
    for part in (magic, PROTOCOL, {"little_endian": True}, OrderedDict(tensors), list(numbers)):
        Pickler(stream, 2).dump(part)
    for values in numbers.values():
        stream.write(struct.pack("<q", values.size) + values.astype("<f4").tobytes())
    return stream.getvalue()


NUMBERS = np.arange(24, dtype=np.float32)


def test_tensors_are_views_into_their_storages() -> None:
    tensors = {
        "as it lies": Tensor("1", 24, (2, 3, 4), (12, 4, 1)),
        "turned": Tensor("1", 24, (4, 3, 2), (1, 4, 12)),
        "a part": Tensor("1", 24, (2, 2), (4, 1), offset=8),
        "a number": Tensor("2", 1, (), ()),
    }
    found = read_checkpoint(checkpoint(tensors, {"1": NUMBERS, "2": np.array([7])}), "file.pth")
    whole = NUMBERS.reshape(2, 3, 4)
    np.testing.assert_array_equal(found["as it lies"], whole)
    np.testing.assert_array_equal(found["turned"], whole.transpose())
    np.testing.assert_array_equal(found["a part"], [[8, 9], [12, 13]])
    assert found["a number"] == 7


def refusal(content: bytes) -> str:
    with pytest.raises(TrainingError, match=r"^file\.pth: expected a torch checkpoint") as caught:
        read_checkpoint(content, "file.pth")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_hostile_pickle_runs_nothing(tmp_path: Any) -> None:
    for function, arguments in (
        (Global("os", "system"), (f"touch {tmp_path}/ran",)),
        (Global("builtins", "eval"), ("1",)),
        (Global("builtins", "getattr"), ("a", "b")),
        (Global("torch", "load"), ()),
        (Global("collections", "Counter"), ()),
    ):
        name = f"{function.module}.{function.name}"
        hostile = io.BytesIO()
        pickler = Pickler(hostile, 2)
        pickler.write(pickle.PROTO + b"\x02")
        pickler.save(function)
        pickler.save(arguments)
        pickler.write(pickle.REDUCE + pickle.STOP)
        content = checkpoint({}, {})
        # In the place of each of the file's pickles.
        for start in (b"", *(content[: content.rindex(b"\x80\x02")],)):
            assert f"it asks for {name}" in refusal(start + hostile.getvalue())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(share: float) -> None:
    content = checkpoint({"a": Tensor("1", 24, (24,), (1,))}, {"1": NUMBERS})
    assert "found none" in refusal(content[: int(share * len(content))])


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("1", 24, (25,), (1,)),
        Tensor("1", 24, (24,), (1,), offset=1),
        Tensor("1", 24, (24,), (1,), offset=-1),
        Tensor("1", 24, (2,), (-1,)),
        Tensor("1", 24, (100_000, 100_000), (0, 0)),
        Tensor("1", 24, (2,), (1, 1)),
        Tensor("1", 10**12, (2,), (1,)),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(tensor: Tensor) -> None:
    assert "found none" in refusal(checkpoint({"a": tensor}, {"1": NUMBERS}))


@pytest.mark.parametrize("content", [b"no pickle", b"PK\x03\x04", pickle.dumps(1), pickle.dumps([]) * 5])
def test_other_files_are_refused(content: bytes) -> None:
    assert "found none" in refusal(content)
