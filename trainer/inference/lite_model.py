"""The bytes of a `.tflite` -> LiteRT's interpreter with its memory allocated: one picture in, detections out.

Needs only numpy and LiteRT. The file may come from anywhere, so its tensors, as LiteRT reports them, are checked
against the description before their memory is allocated, and its outputs before anyone relies on them.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from shared.model.file import ModelFile, quoted
from shared.text import counted
from trainer.inference.quiet import quiet_libraries
from trainer.pixels import as_input

# The names in our files. A file without suppression has `RAW_OUTPUTS` (`trainer/inference/decode.py`).
INPUT: Final = "image"
OUTPUTS: Final = ("boxes", "classes", "scores", "count")
RAW_OUTPUTS: Final = ("boxes", "scores")

_INPUT_TYPES: Final = ("uint8", "float32")
_RAW_TYPES: Final = ("int8", "float32")

# Ten times as many as our models give; `predict` keeps all detections of a picture in memory.
_MOST_DETECTIONS: Final = 1000

# The memory that a model's tensors may take: this much per pixel of its picture, plus room for its weights and
# rearranged copies of them. All tensors together have 240 bytes per pixel with `medium` in float32, 620 with
# MobileNetV2; LiteRT takes a third of that, because it reuses memory.
_BYTES_A_PIXEL: Final = 1024
_BYTES_A_WEIGHT_BYTE: Final = 4
_BYTES_BESIDES: Final = 128 * 2**20

# What LiteRT's Python raises for damaged files: mostly ValueError and RuntimeError, IndexError for a tensor without a
# type, UnicodeDecodeError for names; TypeError and MemoryError if numpy is asked for the impossible.
_LITERT_ERRORS: Final = (ValueError, RuntimeError, LookupError, TypeError, MemoryError)


def memory_budget(content: bytes, image_size: int) -> int:
    """How many bytes the tensors of a model for pictures of `image_size` px may take."""
    return _BYTES_BESIDES + _BYTES_A_WEIGHT_BYTE * len(content) + _BYTES_A_PIXEL * image_size**2


# The tensor's index, its shape, and its scale and zero point, which matter if it is int8.
_Output = tuple[int, tuple[int, ...], tuple[float, int]]


class LiteModel:
    """A model that LiteRT has loaded, with its memory allocated."""

    def __init__(self, file: ModelFile, *, image_size: int, threads: int) -> None:
        """Hand a model to LiteRT.

        Args:
            file: The model.
            image_size: The side of its pictures in pixels, from its description.
            threads: CPU threads of the interpreter.

        Raises:
            ExportError: LiteRT refuses it, its inputs or outputs are not like ours, or it takes too much memory.
        """
        self._file: Final = file
        budget = memory_budget(file.content, image_size)
        with _litert(file, "load"), quiet_libraries():
            self._interpreter: Final = Interpreter(model_content=file.content, num_threads=threads)
            self.is_raw: Final = self._names_outputs() == RAW_OUTPUTS
            self._image: Final = self._one_input(image_size)
            self._check_memory(budget)
            self._interpreter.allocate_tensors()
            # Checked again, because only now do the shapes follow from the input's.
            self._check_memory(budget)
            self._outputs: Final = self._raw_outputs() if self.is_raw else self._four_outputs()

    def run(self, picture_rgb: NDArray[np.uint8]) -> dict[str, NDArray[np.float32]]:
        """The outputs by name, for one picture, given as for `feed`.

        Raises:
            ExportError: LiteRT cannot run it, or its outputs have other shapes than planned.
        """
        self.feed(picture_rgb)
        self.invoke()
        return self.outputs()

    @property
    def raw_shape(self) -> tuple[int, int]:
        """The numbers of boxes per picture and of classes, for a model without suppression."""
        return self._outputs["scores"][1][1], self._outputs["scores"][1][2]

    def feed(self, picture_rgb: NDArray[np.uint8]) -> None:
        """Put one picture of the model's size, uint8 [H, W, 3], RGB, into the input tensor."""
        self._interpreter.set_tensor(self._image["index"], as_input(picture_rgb, self._image["dtype"]))

    def invoke(self) -> None:
        """Run the network on what was fed; latency is measured on this.

        Raises:
            ExportError: LiteRT cannot run it.
        """
        with _litert(self._file, "run"):
            self._interpreter.invoke()

    def outputs(self) -> dict[str, NDArray[np.float32]]:
        """The outputs of the last run by name, dequantized if they are int8.

        With suppression inside there are four (`OUTPUTS`), float32 [1, N, 4], [1, N], [1, N] and [1]; without, boxes
        and scores, float32 [1, A, 4] and [1, A, C].

        Raises:
            ExportError: One cannot be read, or has another shape than when the memory was allocated.
        """
        tensors = {}
        for name, (index, shape, (scale, zero)) in self._outputs.items():
            with _litert(self._file, "run"):
                found = self._interpreter.get_tensor(index)
            if found.shape != shape:
                raise self._file.refusal(f"its output {name} became {list(found.shape)}", f"{list(shape)}")
            is_int8 = found.dtype == np.int8
            tensors[name] = (found.astype(np.float32) - zero) * np.float32(scale) if is_int8 else found
        return tensors

    def _one_input(self, image_size: int) -> dict[str, Any]:
        details = self._interpreter.get_input_details()
        if len(details) != 1:
            raise self._file.refusal(f"{len(details)} inputs", "one picture")
        image: dict[str, Any] = details[0]
        kind, expected = np.dtype(image["dtype"]).name, [1, image_size, image_size, 3]
        types = _RAW_TYPES if self.is_raw else _INPUT_TYPES
        # `shape_signature` has -1 for a side that may differ from picture to picture.
        for shape in ([int(side) for side in image[key]] for key in ("shape", "shape_signature")):
            if kind not in types or shape != expected:
                found = f"its input is {kind} {quoted(shape)}"
                raise self._file.refusal(found, f"{' or '.join(types)} {expected}")
        return image

    def _names_outputs(self) -> tuple[str, ...]:
        """`OUTPUTS` or `RAW_OUTPUTS`, whichever the one signature has."""
        signatures = list(self._interpreter.get_signature_list().values())
        named = [(sorted(signature["inputs"]), sorted(signature["outputs"])) for signature in signatures]
        for known in (OUTPUTS, RAW_OUTPUTS):
            if named == [([INPUT], sorted(known))]:
                return known
        expected = f"one signature of {INPUT} to {', '.join(OUTPUTS)}, or to {' and '.join(RAW_OUTPUTS)}"
        raise self._file.refusal(f"its signatures are {quoted(named)}", expected)

    def _raw_outputs(self) -> dict[str, _Output]:
        """Tensor index, shape and quantization of the heads' outputs by name."""
        details = self._interpreter.get_signature_runner().get_output_details()
        _, cells, _ = (*map(int, details["boxes"]["shape"]), 0, 0, 0)[:3]
        classes = int(details["scores"]["shape"][-1]) if len(details["scores"]["shape"]) else 0
        wanted = {"boxes": (1, max(cells, 1), 4), "scores": (1, max(cells, 1), max(classes, 1))}
        for name, shape in wanted.items():
            kind, found = np.dtype(details[name]["dtype"]).name, tuple(map(int, details[name]["shape"]))
            is_scaled = kind == "float32" or 0 < details[name]["quantization"][0] < np.inf
            if kind not in _RAW_TYPES or found != shape or not is_scaled:
                said = f"its output {name} is {kind} {quoted(list(found))}{'' if is_scaled else ' without a scale'}"
                raise self._file.refusal(said, f"{' or '.join(_RAW_TYPES)} {list(shape)}")
        return {name: (int(details[name]["index"]), at, details[name]["quantization"]) for name, at in wanted.items()}

    def _four_outputs(self) -> dict[str, _Output]:
        """Tensor index and shape by name, because the order of outputs differs between converter releases."""
        details = self._interpreter.get_signature_runner().get_output_details()
        found = {name: [int(side) for side in details[name]["shape"]] for name in OUTPUTS}
        # The number of scores gives the number of places; the others must match it.
        places = min(max(math.prod(found["scores"]), 1), _MOST_DETECTIONS)
        wanted = {"boxes": [1, places, 4], "classes": [1, places], "scores": [1, places], "count": [1]}
        for name, shape in wanted.items():
            kind = np.dtype(details[name]["dtype"]).name
            if (kind, found[name]) != ("float32", shape):
                raise self._file.refusal(f"its output {name} is {kind} {quoted(found[name])}", f"float32 {shape}")
        return {name: (int(details[name]["index"]), tuple(shape), (0.0, 0)) for name, shape in wanted.items()}

    def _check_memory(self, budget: int) -> None:
        # In floats, because the exact product of a million sides takes minutes; abs, lest negative sides offset others.
        total = sum(
            math.prod(abs(float(side)) for side in tensor["shape"]) * max(1, np.dtype(tensor["dtype"]).itemsize)
            for tensor in self._interpreter.get_tensor_details()
        )
        if not total <= budget:
            found = f"LiteRT would take {total / 2**20:,.0f} MiB of memory for its tensors"
            raise self._file.refusal(found, f"at most {budget / 2**20:,.0f} MiB for pictures of its size")


def check_raw_outputs(raw: Mapping[str, NDArray[np.float32]], file: ModelFile) -> None:
    """Refuse outputs of a file without suppression that are not finite.

    Raises:
        ExportError: An output holds a number that is not finite.
    """
    for name in RAW_OUTPUTS:
        if not np.isfinite(raw[name]).all():
            raise file.refusal(f"its output {name} holds a number that is not finite", "encoded boxes and logits")


def check_outputs(raw: Mapping[str, NDArray[np.float32]], labels: int, file: ModelFile) -> None:
    """Refuse outputs that cannot be detections.

    Args:
        raw: The four outputs by name.
        labels: Number of the model's classes.
        file: The model.

    Raises:
        ExportError: The count is impossible, or a detection within it is not finite or has no valid class.
    """
    (count,) = raw["count"].tolist()
    places = raw["classes"].size
    if not (0 <= count <= places and count.is_integer()):
        raise file.refusal(f"its output count is {count:g}", f"a whole number up to {places}")
    for name in ("boxes", "classes", "scores"):
        if not np.isfinite(raw[name][0, : int(count)]).all():
            raise file.refusal(f"its output {name} holds a number that is not finite", "boxes, classes and scores")
    classes = raw["classes"][0, : int(count)]
    strange = classes[(classes < 0) | (classes >= labels) | (classes != np.floor(classes))]
    if strange.size:
        found = f"its output classes holds class {strange[0]:g}"
        raise file.refusal(found, f"whole numbers from 0, since it has {counted(labels, 'label')}")


@contextmanager
def _litert(file: ModelFile, doing: str) -> Iterator[None]:
    """Turn LiteRT's errors about a file into an `ExportError`."""
    try:
        yield
    except _LITERT_ERRORS as error:
        found = f"LiteRT cannot {doing} it ({quoted(str(error) or type(error).__name__)})"
        raise file.refusal(found, f"a model that it can {doing}") from error
