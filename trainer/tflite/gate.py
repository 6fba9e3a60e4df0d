"""Exported files compared with the model they came from: checks that a silently broken export does not pass.

Needs no TensorFlow. Each check names what it found and what to try. Converters report success in spite of the faults
that are checked here: weights that are not in the file, constant scores, an input scale that does not fit raw bytes,
class ids that int8 cannot tell apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from shared.errors import ExportError
from shared.model.description import PIXEL_STD, ModelDescription, read_description
from shared.text import counted
from trainer.detections import Detections, iou_matrix
from trainer.tflite.flatbuffer import operator_kinds
from trainer.tflite.layer_error import LayerError
from trainer.tflite.output_graph import OUTPUT_ORDER, postprocess_outputs, sources_of_outputs

# The least bytes per weight, by form.
_WEIGHT_BYTES: Final = {"float32": 4, "float16": 2, "dynamic": 1, "int8": 1}
# Operators of live variables, whose weights stay behind in Python.
_VARIABLE_OPS: Final = frozenset(
    {schema.BuiltinOperator.VAR_HANDLE, schema.BuiltinOperator.READ_VARIABLE, schema.BuiltinOperator.ASSIGN_VARIABLE}
)
_UINT8, _FLOAT32 = schema.TensorType.UINT8, schema.TensorType.FLOAT32

# Float TFLite and Keras differ only by rounding (1e-5 in scores, 0.01 px); a larger difference means another network.
_PARITY_SCORE: Final = 0.05
_PARITY_SCORE_STEP: Final = 0.01
_PARITY_IOU: Final = 0.98
# Of two boxes whose IoU is within rounding of the suppression threshold, either may be kept, so a hundredth of the
# detections may have no partner.
_PARITY_SHARE: Final = 0.99
# How many layers a refusal names; the report has more.
_LAYERS_NAMED: Final = 3
# Every form must see a class with at least half of this score if Keras sees it with at least this score.
_CLEAR_SCORE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One check of the export; `advice` says what to try if it fails.

    `warning` is what a person should know although it passed.
    """

    name: str
    is_ok: bool
    found: str
    advice: str = ""
    warning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the exported forms did.

    `classes` is the number of trained classes. `reference` are Keras's detections on a few pictures, `seen` each form's
    on the same ones. `judged` is each form's row of `metrics.json` on the whole split of the gate; `max_drop` is in
    points. `layers` are those that int8 changes, worst first; `can_fine_tune` says that `--quantize qat` is still
    possible.
    """

    classes: int
    reference: Sequence[Detections]
    seen: Mapping[str, Sequence[Detections]]
    judged: Mapping[str, Mapping[str, Any]]
    max_drop: float
    layers: Sequence[LayerError] = ()
    can_fine_tune: bool = True


def check_files(models: Mapping[str, bytes], kernels: int, expected: ModelDescription) -> list[GateCheck]:
    """Checks of the files alone, before any of them is run.

    Args:
        models: The files' bytes by form.
        kernels: The number of weights in the network's kernels; biases and normalization do not count.
        expected: The description of the trained model.
    """
    checks: list[GateCheck] = []
    for form, model in models.items():
        tree = schema.ModelT.InitFromPackedBuf(model, 0)
        checks += [
            _variables(form, tree),
            _size(form, len(model), kernels),
            _input(form, tree, expected.image_size),
            _outputs(form, tree),
            _described(form, model, expected),
        ]
    return checks


def check_detections(evidence: Evidence) -> list[GateCheck]:
    """Checks of what the forms saw, compared with what the trained network saw."""
    checks = [_class_ids(form, evidence) for form in evidence.seen]
    lossy = (form for form in evidence.seen if form != "float32")
    return [*checks, _parity(evidence), *(_drop(form, evidence) for form in lossy)]


def require(checks: Sequence[GateCheck], report: str | None = None) -> None:
    """Raise an error that names every failed check, if there is one.

    Args:
        checks: All checks that were made.
        report: Where the report is, if it was written.

    Raises:
        ExportError: A check failed; the text says which, what was found, and what to try.
    """
    failed = [check for check in checks if not check.is_ok]
    if failed:
        texts = [f"{check.name}: {check.found}. {check.advice}".rstrip(" .") for check in failed]
        more = [] if report is None else [f"the report shows more: {report}"]
        raise ExportError(f"the export gate refuses this model: {'; '.join([*texts, *more])}")


def _variables(form: str, tree: schema.ModelT) -> GateCheck:
    found = sum(kind in _VARIABLE_OPS for kind in operator_kinds(tree))
    return GateCheck(
        name=f"{form}: weights are constants",
        is_ok=found == 0,
        found=f"{found} kinds of variable ops",
        advice="Convert a function whose weights are tf.constant (stateless_call), not one that captures variables.",
    )


def _size(form: str, size_bytes: int, kernels: int) -> GateCheck:
    least = kernels * _WEIGHT_BYTES[form]
    return GateCheck(
        name=f"{form}: weights are in the file",
        is_ok=size_bytes > least,
        found=f"{size_bytes} bytes for {kernels} kernel weights, at least {least}",
        advice="The converter dropped the network; do not freeze the function before converting it.",
    )


def _input(form: str, tree: schema.ModelT, image_size: int) -> GateCheck:
    graph = tree.subgraphs[0]
    tensor = graph.tensors[graph.inputs[0]]
    scale, zero = _quantization(tensor)
    shape = [int(side) for side in tensor.shape]
    is_ok = len(graph.inputs) == 1 and shape == [1, image_size, image_size, 3]
    is_raw = tensor.type == _UINT8 and abs(scale * PIXEL_STD - 1) < 1e-3 and zero in (127, 128)
    return GateCheck(
        name=f"{form}: input takes raw pixels",
        is_ok=is_ok and (is_raw if form == "int8" else tensor.type == _FLOAT32),
        found=f"shape {shape}, type {tensor.type}, scale {scale:.6f}, zero point {zero}",
        advice="Clients feed bytes as they are: scale 1/127.5, zero 127 or 128. Put a 0 and a 255 into every "
        "calibration sample.",
    )


def _quantization(tensor: schema.TensorT) -> tuple[float, int]:
    quantization = tensor.quantization
    if quantization is None or quantization.scale is None or len(quantization.scale) == 0:
        return 0.0, 0
    return float(quantization.scale[0]), int(quantization.zeroPoint[0])


def _outputs(form: str, tree: schema.ModelT) -> GateCheck:
    """Positions, signature names and types of the outputs, compared with the operator's order."""
    advice = "Order the subgraph's outputs as the op's; keep the op's outputs float."
    check = partial(GateCheck, name=f"{form}: outputs are boxes, classes, scores, count", advice=advice)
    try:
        made = postprocess_outputs(tree)
    except ExportError as error:
        return check(is_ok=False, found=str(error))
    sources = sources_of_outputs(tree)
    signature = tree.signatureDefs[0].outputs if tree.signatureDefs else []
    named = {entry.name.decode(): sources.get(int(entry.tensorIndex)) for entry in signature}
    positions = list(sources.values())
    types = {tree.subgraphs[0].tensors[index].type for index in sources}
    is_ok = positions == made and [named.get(name) for name in OUTPUT_ORDER] == made and types == {_FLOAT32}
    return check(is_ok=is_ok, found=f"the op makes {made}, positions {positions}, names {named}")


def _described(form: str, model: bytes, expected: ModelDescription) -> GateCheck:
    name = f"{form}: labels and metadata"
    try:
        stated = read_description(model)
    except ExportError as error:
        return GateCheck(name=name, is_ok=False, found=str(error), advice="Write the metadata.")
    is_ok = (stated.labels, stated.image_size, stated.resize) == (expected.labels, expected.image_size, expected.resize)
    return GateCheck(
        name=name,
        is_ok=is_ok,
        found=f"labels {stated.labels}, {stated.image_size} px, {stated.resize}",
        advice=f"The model was trained with labels {expected.labels}, {expected.image_size} px, {expected.resize}.",
    )


def _class_ids(form: str, evidence: Evidence) -> GateCheck:
    clear = _classes(evidence.reference, _CLEAR_SCORE)
    seen = _classes(evidence.seen[form], _CLEAR_SCORE / 2)
    return GateCheck(
        name=f"{form}: class ids",
        is_ok=clear <= seen and all(1 <= class_id <= evidence.classes for class_id in seen),
        found=f"Keras sees classes {sorted(clear)}, the file {sorted(seen)}",
        advice="Keep the post-processing op's outputs float and prepend exactly one background column.",
    )


def _classes(detections: Sequence[Detections], score: float) -> set[int]:
    return {int(class_id) for found in detections for class_id in found.above(score).class_ids}


def _parity(evidence: Evidence) -> GateCheck:
    seen = evidence.seen["float32"]
    pairs = list(zip(evidence.reference, seen, strict=True))
    shares = [share for keras, tflite in pairs for share in (_matched(keras, tflite), _matched(tflite, keras))]
    counts = np.asarray(shares, np.int64).reshape(-1, 2).sum(axis=0)
    share = 1.0 if counts[1] == 0 else float(counts[0] / counts[1])
    return GateCheck(
        name="float32: same detections as Keras",
        is_ok=share >= _PARITY_SHARE,
        found=f"{share:.2%} of {counts[1]} detections above {_PARITY_SCORE} have their partner",
        advice="The file holds another network than the one trained: look at the weights and the order of the outputs.",
    )


def _matched(first: Detections, second: Detections) -> tuple[int, int]:
    """How many of `first` above the parity score have a partner in `second`, and how many there are."""
    first = first.above(_PARITY_SCORE)
    if first.scores.size == 0:
        return 0, 0
    near: NDArray[np.bool_] = (
        (iou_matrix(first.boxes, second.boxes) >= _PARITY_IOU)
        & (first.class_ids[:, None] == second.class_ids[None])
        & (np.abs(first.scores[:, None] - second.scores[None]) <= _PARITY_SCORE_STEP)
    )
    return int(near.any(axis=1).sum()), int(first.scores.size)


def _drop(form: str, evidence: Evidence) -> GateCheck:
    """Check the loss of mAP50; fails only if it is certainly too large: a few pictures can move mAP50 by points."""
    row = evidence.judged[form]
    found, exact = 100 * row["map50"], 100 * evidence.judged["float32"]["map50"]
    low, high = row["drop_interval"]
    lost = (
        f"mAP50 {found:.2f} % against {exact:.2f} % of float32 on {row['split']}, a loss of {exact - found:.2f} points"
    )
    judged = f"{counted(row['objects'], 'object')} in {counted(row['pictures'], 'picture')}"
    sure = f"{low:.2f} to {high:.2f} with 95 % confidence by {judged}"
    is_ok, warning = low <= evidence.max_drop, ""
    if is_ok and exact - found > evidence.max_drop:
        doubt = f"{lost} where {evidence.max_drop:g} may be lost, but {sure}: too few to decide"
        warning = f"{doubt}. More {row['split']} photos would tell; {_meanwhile(form)}"
    elif row["objects"] == 0 and form == "int8":  # warn only once, not for each form
        doubt = f"what int8 loses is not known: no {row['split']} photo has an object that counts"
        warning = f"{doubt}. Put photos with objects into {row['split']}; {_meanwhile(form)}"
    return GateCheck(
        name=f"{form}: accuracy kept",
        is_ok=is_ok,
        found=f"{lost} ({sure}), {evidence.max_drop:g} allowed",
        advice=_drop_advice(form, evidence),
        warning=warning,
    )


def _meanwhile(form: str) -> str:
    safer = "float32" if form == "float16" else "float16"
    return f"until then use model_{safer}.tflite where it matters"


def _drop_advice(form: str, evidence: Evidence) -> str:
    """What to try, most promising first; for int8 also the layers to look at."""
    if form != "int8":
        return "Rounding the weights should cost next to nothing: look for weights of extreme size in the float model."
    worst = ", ".join(f"{layer.tensor} ({layer.error:.1%})" for layer in evidence.layers[:_LAYERS_NAMED])
    fine_tuning = "--quantize qat (learns on with int8's rounding in it), " if evidence.can_fine_tune else ""
    return (
        f"Try {fine_tuning}longer training, more varied training pictures, or a larger --max-drop. "
        f"Layers that int8 changes most: {worst or 'none could be compared'}."
    )
