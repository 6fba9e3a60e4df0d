"""Checks of files without suppression: against what accelerators support, and against the files they were cut from.

Needs no TensorFlow. A delegate that does not support an operator silently leaves it to the CPU, or refuses the file;
both would be noticed only on the device, months later. So the files are checked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ai_edge_litert import schema_py_generated as schema

from shared.errors import ExportError
from shared.model.description import Decoding, ModelDescription, read_description
from shared.text import counted
from trainer.inference.lite_model import INPUT, RAW_OUTPUTS
from trainer.tflite.flatbuffer import operator_kinds
from trainer.tflite.gate import GateCheck
from trainer.tflite.profiler import NoProfilerError, ran_in_pieces
from trainer.tflite.runtimes import left_to_cpu, operators, partitions

# The largest difference in mAP50 and mAP, in points, between a file and the one it was cut from: their weights are the
# same.
MOST_POINTS: Final = 0.3

_INT8, _FLOAT32 = schema.TensorType.INT8, schema.TensorType.FLOAT32
# The scale of an input that takes bytes minus 128.
_BYTE_SCALE: Final = 1 / 127.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A form's file, and a helper that makes its checks."""

    form: str
    model: bytes
    tree: schema.ModelT

    @property
    def is_int8(self) -> bool:
        return self.form.startswith("int8")

    def check(self, question: str, found: str, advice: str, *, is_ok: bool) -> GateCheck:
        return GateCheck(name=f"{self.form}: {question}", is_ok=is_ok, found=found, advice=advice)


def check_raw_files(models: Mapping[str, bytes], expected: ModelDescription, decoding: Decoding) -> list[GateCheck]:
    """Checks of the files without suppression by themselves, and of how XNNPACK runs them.

    Args:
        models: The files' bytes by form.
        expected: The description of the trained model.
        decoding: How their outputs must be decoded.
    """
    checks: list[GateCheck] = []
    for form, model in models.items():
        file = _File(form=form, model=model, tree=schema.ModelT.InitFromPackedBuf(model, 0))
        checks += [_builtin(file), _static(file), _ends(file, expected, decoding), _described(file, expected, decoding)]
        # Dynamic range, float activations with int8 weights, is a form only for CPUs.
        if not form.startswith("dynamic"):
            checks += [_taken(file), _whole(file)]
    return checks


def check_raw_figures(judged: Mapping[str, Mapping[str, Any]], raw: str) -> list[GateCheck]:
    """Checks of the accuracy, compared with the files with suppression.

    Args:
        judged: Each form's row of `metrics.json` on the gate's split.
        raw: The suffix of a form without suppression; the rest of the name is the form it was cut from.
    """
    checks = []
    for form in (form for form in judged if form.endswith(raw)):
        whole = form.removesuffix(raw)
        points = {name: 100 * (judged[form][name] - judged[whole][name]) for name in ("map50", "map")}
        found = ", ".join(f"{name} {value:+z.2f} points" for name, value in points.items())
        checks.append(
            GateCheck(
                name=f"{form}: as accurate as with suppression inside",
                is_ok=max(map(abs, points.values())) <= MOST_POINTS,
                found=f"{found} against {whole}, {MOST_POINTS:g} allowed",
                advice="The outputs are decoded in another way than the operator inside does it.",
            )
        )
    return checks


def _builtin(file: _File) -> GateCheck:
    found = sorted(operators(file.model))
    foreign = [name for name in found if not name.isidentifier()]  # names of custom operators have quotes
    control = {"IF", "WHILE", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"} & set(found)
    is_ok = not foreign and not control and len(file.tree.subgraphs) == 1
    advice = (
        "Leave out what is no convolution: custom and Flex operators, variables and control flow stop accelerators."
    )
    return file.check("built-in operators only", f"{', '.join(found)}", advice, is_ok=is_ok)


def _static(file: _File) -> GateCheck:
    graph = file.tree.subgraphs[0]
    moving = [
        tensor.name.decode(errors="replace")
        for tensor in graph.tensors
        if any(side < 0 for signature in (tensor.shape, tensor.shapeSignature) for side in _sides(signature))
    ]
    kinds = operator_kinds(file.tree)
    resized = sum(kinds[op.opcodeIndex] == schema.BuiltinOperator.RESIZE_NEAREST_NEIGHBOR for op in graph.operators)
    found = f"{len(moving)} tensors without a fixed shape, {resized} maps resized by an operator"
    return file.check("static shapes", found, "Export a batch of one.", is_ok=not moving and not resized)


def _sides(signature: Any) -> list[int]:
    return [] if signature is None else [int(side) for side in signature]


def _ends(file: _File, expected: ModelDescription, decoding: Decoding) -> GateCheck:
    """Check names, shapes and types of input and outputs; int8's input must take bytes minus 128."""
    graph, size = file.tree.subgraphs[0], expected.image_size
    cells = decoding.cells(size)
    kind = _INT8 if file.is_int8 else _FLOAT32
    wanted = [
        (INPUT, [1, size, size, 3], kind),
        (RAW_OUTPUTS[0], [1, cells, 4], kind),
        (RAW_OUTPUTS[1], [1, cells, len(expected.labels)], kind),
    ]
    tensors = [graph.tensors[index] for index in [*graph.inputs, *graph.outputs]]
    found = [(tensor.name.decode(errors="replace"), _sides(tensor.shape), tensor.type) for tensor in tensors]
    signed = file.tree.signatureDefs or []
    named = [entry.name.decode() for each in signed for entry in [*each.inputs, *each.outputs]]
    is_ok = found == wanted and named == [INPUT, *RAW_OUTPUTS] and (not file.is_int8 or _takes_bytes(tensors))
    advice = "The outputs are boxes and scores, each with a scale of its own; int8's input is a byte less 128."
    return file.check("input and outputs as decoders want them", f"{found}", advice, is_ok=is_ok)


def _takes_bytes(tensors: list[schema.TensorT]) -> bool:
    """Whether the input is a byte minus 128, and each of the two outputs has its own scale."""
    scales = [list(tensor.quantization.scale) for tensor in tensors if tensor.quantization is not None]
    if [len(scale) for scale in scales] != [1, 1, 1]:
        return False
    zero = int(tensors[0].quantization.zeroPoint[0])
    return abs(float(scales[0][0]) / _BYTE_SCALE - 1) < 1e-3 and zero in (-1, 0)


def _described(file: _File, expected: ModelDescription, decoding: Decoding) -> GateCheck:
    question = "labels and how to decode"
    try:
        stated = read_description(file.model)
    except ExportError as error:
        return file.check(question, str(error), "Write the metadata.", is_ok=False)
    same = (stated.labels, stated.image_size, stated.resize) == (expected.labels, expected.image_size, expected.resize)
    found = f"labels {stated.labels}, {stated.image_size} px, {stated.resize}, {stated.decoding}"
    advice = f"The model was trained with labels {expected.labels}, {expected.image_size} px, {expected.resize}."
    return file.check(question, found, advice, is_ok=same and stated.decoding == decoding)


def _taken(file: _File) -> GateCheck:
    left = left_to_cpu(file.model, is_int8=file.is_int8)
    said = "; ".join(f"{name} lacks {', '.join(missing)}" for name, missing in left.items())
    advice = "Another --backbone, or --nms inside; what the lists say is in trainer/tflite/runtimes.py."
    return file.check("every operator on the lists of accelerators", said or "none is missing", advice, is_ok=not left)


def _whole(file: _File) -> GateCheck:
    """Check that it is one piece as LiteRT plans it and, if the profiler can be used, as it is run."""
    plan = partitions(file.model)
    found, is_ok = f"{_pieces(*plan)} as planned", plan == (1, [])
    try:
        run = ran_in_pieces(file.model)
    except NoProfilerError as error:
        found += f"; not seen to run: {error}"
    else:
        found, is_ok = f"{found}, {_pieces(*run)} as run", is_ok and run == (1, [])
    return file.check("XNNPACK takes it in one piece", found, "Another --backbone, or --nms inside.", is_ok=is_ok)


def _pieces(count: int, outside: list[str]) -> str:
    return counted(count, "piece") + (f" and {', '.join(outside)} outside" if outside else "")
