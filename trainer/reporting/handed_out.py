"""The files of a run -> what each is and whom it is for: the list in the model card."""

from collections.abc import Iterable, Mapping
from typing import Final

_INSIDE: Final = "suppression inside"
_OUTSIDE: Final = "suppression outside, for GPUs, NPUs and browsers; decoded as docs/runtimes.md shows"
_FLOAT: Final = "float32 in, float32 out"

# Descriptions by file name, by the beginning of the name, or by folder.
_FILES: Final[Mapping[str, str]] = {
    "model_int8.tflite": f"LiteRT and MediaPipe Tasks on phones, Pis and desks: uint8 in; {_INSIDE}",
    "model_float32.tflite": f"the same where accuracy counts more than size: {_FLOAT}; {_INSIDE}",
    "model_float16.tflite": f"half of float32's bytes, for little loss: {_FLOAT}; {_INSIDE}",
    "model_dynamic.tflite": f"int8 weights, computed in float on a CPU: {_FLOAT}; {_INSIDE}",
    "model_int8_raw.tflite": f"int8 in and out; {_OUTSIDE}",
    "model_float32_raw.tflite": f"{_FLOAT}; {_OUTSIDE}",
    "model_float16_raw.tflite": f"what a GPU delegate computes in anyway; {_OUTSIDE}",
    "model_dynamic_raw.tflite": f"{_FLOAT}, for CPUs; {_OUTSIDE}",
    "saved_model/": "TensorFlow and TensorFlow Serving: `serving_default` takes pixels, `jpeg` the bytes of a photo",
    "model.keras": "Keras, to train on (`submit --from`) or to take apart, after `import trainer.network.detector`",
    "model_qat.keras": "Keras, after `import trainer.training.qat`: int8 was made of it, and it rounds as int8 does",
    "labels.txt": "every program that shows names: one class a line, the first is class 0 of the files",
    "metrics.json": "programs: every figure of every form",
    "gate.json": "programs: what the export gate asked and found",
    "report.html": "people: advice, figures and pictures in one page",
    "model_card.md": "people: this page",
    "plots/": "people: pictures and curves",
    "detections_": "`compare`: what int8 saw of the split that was measured",
    "resamples_": "the page's compare: what int8 is worth on resamples of that split's photos",
}


def files_of_run(names: Iterable[str]) -> dict[str, str]:
    """What each file is, in the order of the card; a folder gets one line.

    Args:
        names: File names relative to the run's folder.
    """
    there = sorted({_entry(name) for name in names})
    order = list(_FILES)
    known = sorted(there, key=lambda name: order.index(_key(name)) if _key(name) in order else len(order))
    return {name: _FILES.get(_key(name), "") for name in known}


def _entry(name: str) -> str:
    folder, slash, _ = name.partition("/")
    return folder + slash


def _key(name: str) -> str:
    return next((start for start in ("detections_", "resamples_") if name.startswith(start)), name)
