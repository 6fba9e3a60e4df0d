"""A `.tflite` and a picture -> the milliseconds of each operator in a run, by LiteRT's own profiler.

It is in LiteRT's C library (`LiteRtCompiledModelGetProfiler`) and cannot be called from Python. So the library that
`ai_edge_litert` installs is called with ctypes, and the profiler's text report is parsed, because its events are a
struct that changes between versions.
"""

import ctypes
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import ai_edge_litert
import numpy as np
from numpy.typing import NDArray

from trainer.inference.quiet import quiet_libraries

# The versions whose functions are used here; before them LiteRtCreateModelFromBuffer took no environment.
KNOWN_VERSIONS: Final = ("2.3.",)

# A report sums up all runs since the model was compiled, even after a reset, so each measured run compiles it again.
_MODELS: Final = 20
_WARM_UP_RUNS: Final = 3

# How LiteRT marks an operator that XNNPACK runs.
_OF_XNNPACK: Final = "Delegate/"
_CPU: Final = 1  # kLiteRtHwAcceleratorCpu
_WRITE: Final = 1  # kLiteRtTensorBufferLockModeWrite
# For LiteRtRankedTensorType: a type, a rank, 8 sides and 8 strides of 4 bytes each, with some room for growth.
_TENSOR_TYPE_BYTES: Final = 256

# A row of "Run Order": kind, start, first, average in milliseconds, two percentages, kB, times called, [owner]:place.
_ROW: Final = re.compile(
    r"^\s*(?P<kind>\S.*?)\s+[\d.]+\s+[\d.]+\s+(?P<ms>[\d.]+)\s+[\d.]+%\s+[\d.]+%\s+[\d.]+\s+(?P<times>\d+)\s+"
    r"\[(?P<owner>\w+)\]:(?P<place>\d+)\s*$"
)
_Pointer = ctypes.c_void_p


class NoProfilerError(Exception):
    """LiteRT's profiler cannot be used: an unknown version, no C library, or a model that it cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator as LiteRT runs it: `calls` in a run, several if pieces share its row, and `ms` for all of them."""

    kind: str
    place: int
    is_in_xnnpack: bool
    calls: int
    ms: float


def profile(model: bytes, picture: NDArray[Any]) -> list[Step]:
    """Run a model on one thread with LiteRT's CompiledModel, and take medians over 20 runs.

    Args:
        model: A `.tflite` with one input.
        picture: The input, in the input's own shape and type.

    Returns:
        The operators, in the order of the run.

    Raises:
        NoProfilerError: The profiler cannot be used.
    """
    with quiet_libraries():
        runs = [_run(model, np.ascontiguousarray(picture)) for _ in range(_MODELS)]
    times = defaultdict(list)
    for step in (step for run in runs for step in run):
        times[replace(step, ms=0.0)].append(step.ms)
    return [replace(step, ms=statistics.median(times[replace(step, ms=0.0)])) for step in runs[0]]


def ran_in_pieces(model: bytes) -> tuple[int, list[str]]:
    """In how many pieces XNNPACK ran a model on zeros, and the kinds of operators it did not run, sorted.

    Raises:
        NoProfilerError: The profiler cannot be used.
    """
    with quiet_libraries():
        steps = _run(model, None)
    # XNNPACK numbers the operators of each piece from 0.
    count = sum(step.calls for step in steps if step.is_in_xnnpack and step.place == 0)
    return count, sorted({step.kind for step in steps if not step.is_in_xnnpack})


def _run(model: bytes, picture: NDArray[Any] | None) -> list[Step]:
    """The operators of one run, on a picture or, if None, on zeros."""
    with _loaded(model, picture) as loaded:
        for _ in range(_WARM_UP_RUNS):
            loaded.run()
        return _steps(loaded.profiled_run())


def _steps(report: str) -> list[Step]:
    """The rows of the report's first table.

    Raises:
        NoProfilerError: There are none, so the report has another format.
    """
    table = report.split("Top by Computation Time")[0]
    rows = [row for row in map(_ROW.match, table.splitlines()) if row is not None]
    if not rows:
        raise NoProfilerError("the profiler's report has no operators in it, or in another form")
    return [
        Step(
            kind=row["kind"].removeprefix(_OF_XNNPACK),
            place=int(row["place"]),
            is_in_xnnpack=row["kind"].startswith(_OF_XNNPACK),
            calls=int(row["times"]),
            ms=float(row["ms"]) * int(row["times"]),
        )
        for row in rows
    ]


class _Library:
    """LiteRT's C library: each function returns a status, and its result through its last argument."""

    def __init__(self) -> None:
        version = metadata.version("ai-edge-litert")
        if not version.startswith(KNOWN_VERSIONS):
            raise NoProfilerError(f"LiteRT is {version}, its C functions are known of {', '.join(KNOWN_VERSIONS)}*")
        found = sorted(Path(ai_edge_litert.__file__).parent.glob("libLiteRt.*"))
        if not found:
            raise NoProfilerError("LiteRT's C library is not installed beside its Python package")
        self._library = ctypes.CDLL(str(found[0]))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status.

        Raises:
            NoProfilerError: The library does not have the function, or it failed.
        """
        try:
            status = int(self._library[name](*arguments))
        except AttributeError as error:
            raise NoProfilerError(f"LiteRT's C library has no {name}") from error
        if status:
            raise NoProfilerError(f"{name} failed with status {status}")

    def get(self, name: str, *arguments: Any) -> _Pointer:
        """Call a function that also gives a pointer; raises as `call` does."""
        made = _Pointer()
        self.call(name, *arguments, ctypes.byref(made))
        return made

    def count(self, name: str, *arguments: Any) -> int:
        """Call a function that also gives a number; raises as `call` does."""
        number = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(number))
        return number.value

    def destroy(self, name: str, made: _Pointer) -> None:
        """Call a function that returns nothing."""
        function = self._library[name]
        function.restype = None
        function(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A model with its buffers, ready to run."""

    library: _Library
    compiled: _Pointer
    profiler: _Pointer
    inputs: "ctypes.Array[_Pointer]"
    outputs: "ctypes.Array[_Pointer]"

    def run(self) -> None:
        ends = [(ctypes.c_size_t(len(buffers)), buffers) for buffers in (self.inputs, self.outputs)]
        self.library.call("LiteRtRunCompiledModel", self.compiled, _place(0), *ends[0], *ends[1])

    def profiled_run(self) -> str:
        """Run once and return the profiler's report."""
        self.library.call("LiteRtStartProfiler", self.profiler)
        self.run()
        self.library.call("LiteRtStopProfiler", self.profiler)
        report = self.library.get("LiteRtGetProfileSummary", self.profiler, self.compiled)
        try:
            return ctypes.string_at(report).decode(errors="replace")
        finally:
            _c_library().free(report)


@contextmanager
def _loaded(model: bytes, picture: NDArray[Any] | None) -> Iterator[_Loaded]:
    library = _Library()
    with ExitStack() as stack:

        def made(kind: str, *arguments: Any, how: str = "") -> _Pointer:
            pointer = library.get(f"LiteRtCreate{how or kind}", *arguments)
            stack.callback(library.destroy, f"LiteRtDestroy{kind}", pointer)
            return pointer

        environment = made("Environment", 0, None)
        # The library reads the bytes as long as the model lives; the caller's frame keeps `model` alive.
        loaded = made("Model", environment, model, ctypes.c_size_t(len(model)), how="ModelFromBuffer")
        options = made("Options")
        library.call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        _set(library, options, "runtime_options_string", "enable_profiling = true\n")
        _set(library, options, "xnnpack", "num_threads = 1\n")
        compiled = made("CompiledModel", environment, loaded, options)
        signature = library.get("LiteRtGetModelSignature", loaded, _place(0))
        ends = []
        for end in ("Input", "Output"):
            kinds = _tensor_types(library, signature, end)
            needs = [
                library.get(f"LiteRtGetCompiledModel{end}BufferRequirements", compiled, _place(0), _place(at))
                for at in range(len(kinds))
            ]
            how = "ManagedTensorBufferFromRequirements"
            buffers = [
                made("TensorBuffer", environment, kind, need, how=how) for kind, need in zip(kinds, needs, strict=True)
            ]
            ends.append((_Pointer * len(buffers))(*buffers))
        _fill(library, ends[0], picture)
        profiler = library.get("LiteRtCompiledModelGetProfiler", compiled)
        yield _Loaded(library=library, compiled=compiled, profiler=profiler, inputs=ends[0], outputs=ends[1])


def _set(library: _Library, options: _Pointer, section: str, settings: str) -> None:
    """Add settings in TOML as a C string, which the options free with the C library's `free`."""
    c_library = _c_library()
    text = _Pointer(c_library.strdup(settings.encode()))
    free = ctypes.cast(c_library.free, _Pointer)
    library.call(
        "LiteRtAddOpaqueOptions", options, library.get("LiteRtCreateOpaqueOptions", section.encode(), text, free)
    )


def _c_library() -> ctypes.CDLL:
    c_library = ctypes.CDLL(None)
    c_library.strdup.restype = _Pointer
    c_library.free.restype, c_library.free.argtypes = None, [_Pointer]
    return c_library


def _tensor_types(library: _Library, signature: _Pointer, end: str) -> list[Any]:
    """The type and shape of each input or output, in the library's own struct."""
    found = []
    for at in range(library.count(f"LiteRtGetNumSignature{end}s", signature)):
        tensor = library.get(f"LiteRtGetSignature{end}TensorByIndex", signature, _place(at))
        kind = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
        library.call("LiteRtGetRankedTensorType", tensor, kind)
        found.append(kind)
    return found


def _fill(library: _Library, inputs: Any, picture: NDArray[Any] | None) -> None:
    """Write the picture into the only input or, if None, zeros into all inputs."""
    sizes = [library.count("LiteRtGetTensorBufferPackedSize", _Pointer(buffer)) for buffer in inputs]
    if picture is not None and sizes != [picture.nbytes]:
        raise NoProfilerError(f"the model takes inputs of {sizes} bytes, not one of {picture.nbytes}")
    for buffer, size in zip(map(_Pointer, inputs), sizes, strict=True):
        content = bytes(size) if picture is None else picture.tobytes()
        address = _Pointer()
        library.call("LiteRtLockTensorBuffer", buffer, ctypes.byref(address), _WRITE)
        ctypes.memmove(address, content, size)
        library.call("LiteRtUnlockTensorBuffer", buffer)


def _place(index: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(index)
