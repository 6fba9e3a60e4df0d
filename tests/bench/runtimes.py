"""One model in every runtime that can be had here, on the same photos: detections against LiteRT's, and milliseconds.

A run exported with `--nms both` is seen by LiteRT's Interpreter and CompiledModel, MediaPipe Tasks, LiteRT.js in
Chromium and TensorFlow's SavedModel, each on one thread and on the very same pixels; those of this process take turns.
What cannot be run here has a line with what its list of operators says. `VOC_PEERS_MEDIAPIPE_ENV` and `VOC_LITERTJS`
name MediaPipe's environment and LiteRT.js.
Run: `python tests/bench/runtimes.py --run out/demo/runs/demo --photos photos/JPEGImages`.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np

from shared.model.description import read_description
from tests.browser.chromium import find_chromium
from tests.browser.litert import NODE_MODULES, as_detections, detect_in_browser, litert_page
from tests.peers.test_mediapipe import seen_by_mediapipe
from trainer.detections import Detections
from trainer.inference.decode import decode
from trainer.inference.detector import Detector, fit
from trainer.pixels import Picture, as_input
from trainer.tflite.runtimes import RUNTIMES, left_to_cpu

FORMS: Final = ("float32", "int8")
COUNT: Final = 50
# Only what a person might be shown is compared: far below, an equal score decides which of two boxes is kept.
LEAST: Final = 0.1

ROUNDS: Final = 3

Detect = Callable[[Picture], Detections]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A runtime and a file: detections above `LEAST`, how many have a partner of LiteRT's, the largest differences."""

    runtime: str
    form: str
    boxes: int
    paired: int
    score: float
    box_px: float
    ms: float

    def __str__(self) -> str:
        """As a line of a Markdown table."""
        differences = f"{self.score:.4f} | {self.box_px:.2f}"
        return f"| {self.runtime} | {self.form} | {self.boxes} | {self.paired} | {differences} | {self.ms:.2f} |"


def main() -> None:
    """Print the table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--run", type=Path, help="folder of a run that was exported with --nms both")
    asked.add_argument("--photos", type=Path, help="folder of photos")
    options = asked.parse_args()
    if options.run is None or options.photos is None:
        sys.stdout.write("needs --run and --photos: left out\n")
        return
    models = {path.stem.removeprefix("model_"): path.read_bytes() for path in sorted(options.run.glob("*.tflite"))}
    pictures = stored(options.photos, models["int8"])
    sys.stdout.write(f"{len(pictures)} photos, one thread, {platform.machine()}; pairs: same class, IoU by 2 px\n\n")
    sys.stdout.write(
        "| runtime | file | boxes | paired | score differs | box differs, px | ms |\n|---|---|---|---|---|---|---|\n"
    )
    wanted = {form: [Detector(models[form]).detect_stored(picture) for picture in pictures] for form in FORMS}
    for name, form, (seen, ms) in runtimes(options.run, models, pictures):
        sys.stdout.write(f"{compared(name, form, wanted[form.removesuffix('_raw')], seen, ms)}\n")
        sys.stdout.flush()
    sys.stdout.write("\n| not run here | file | what its list says | list |\n|---|---|---|---|\n")
    for line in not_run(models):
        sys.stdout.write(f"{line}\n")


def stored(folder: Path, model: bytes) -> list[Picture]:
    """The first photos as the model sees them, RGB."""
    description = read_description(model)
    pictures: list[Picture] = []
    for path in sorted(folder.iterdir()):
        photo = cv2.imread(str(path))
        if photo is not None and len(pictures) < COUNT:
            pixels = fit(photo.astype(np.uint8), description.image_size, description.resize)
            pictures.append(np.ascontiguousarray(pixels[..., ::-1]))
    return pictures


def runtimes(run: Path, models: dict[str, bytes], pictures: Sequence[Picture]) -> Any:
    """Name, form and what was seen, of each runtime and file."""
    ours: dict[tuple[str, str], Detect] = {}
    for form in [f"{form}{raw}" for form in FORMS for raw in ("", "_raw")]:
        ours["LiteRT Interpreter", form] = Detector(models[form], is_ours=True).detect_stored
        ours["LiteRT CompiledModel, CPU", form] = compiled_model(run / f"model_{form}.tflite", models[form])
    ours["TensorFlow SavedModel", "float32"] = saved_model(run / "saved_model", pictures[0].shape[0])
    seen = {key: [detect(picture) for picture in pictures] for key, detect in ours.items()}
    times: dict[tuple[str, str], list[float]] = {key: [] for key in ours}
    for picture in [*pictures] * ROUNDS:
        for key, detect in ours.items():
            detect(picture)  # the caches are another's
            start = time.perf_counter()
            detect(picture)
            times[key].append((time.perf_counter() - start) * 1000)
    for key in ours:
        yield *key, (seen[key], statistics.median(times[key]))
    yield from by_mediapipe(run, models, pictures)
    yield from by_litert_js(models, pictures)


def compiled_model(path: Path, model: bytes) -> Detect:
    """LiteRT's newer interface, which accelerators are used by."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.interpreter import Interpreter

    ends = Interpreter(model_content=model)
    image, outputs = ends.get_input_details()[0], ends.get_signature_runner().get_output_details()
    description, compiled = read_description(model), CompiledModel.from_file(str(path))
    buffers = {"image": compiled.create_input_buffer_by_name("serving_default", "image")}
    results = {name: compiled.create_output_buffer_by_name("serving_default", name) for name in outputs}

    def detect(picture: Picture) -> Detections:
        buffers["image"].write(np.ascontiguousarray(as_input(picture, image["dtype"])))
        compiled.run_by_name("serving_default", buffers, results)
        raw = {}
        for name, detail in outputs.items():
            values = results[name].read(int(np.prod(detail["shape"])), detail["dtype"]).reshape(detail["shape"])
            scale, zero = detail["quantization"]
            raw[name] = (values.astype(np.float32) - zero) * np.float32(scale) if scale else values
        if description.decoding is not None:
            return decode(raw["boxes"][0], raw["scores"][0], description.decoding, description.image_size)
        return of_four(raw, description.image_size)

    return detect


def of_four(raw: dict[str, Any], size: int) -> Detections:
    """The four outputs of a file with suppression."""
    count = int(np.asarray(raw["count"]).reshape(-1)[0])
    boxes = np.asarray(raw["boxes"]).reshape(-1, 4)[:count, [1, 0, 3, 2]] * size
    classes, scores = (np.asarray(raw[name]).reshape(-1)[:count] for name in ("classes", "scores"))
    return as_detections(np.column_stack([boxes, classes, scores]).tolist())


def by_mediapipe(run: Path, models: dict[str, bytes], pictures: Sequence[Picture]) -> Any:
    """MediaPipe Tasks, in its own environment; files with suppression only."""
    named = os.environ.get("VOC_PEERS_MEDIAPIPE_ENV")
    if named is None:
        return
    python, script = Path(named, "bin/python"), Path(__file__).parents[1] / "peers/mediapipe_detect.py"
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{place:03d}.png") for place in range(len(pictures))]
        for path, picture in zip(paths, pictures, strict=True):
            cv2.imwrite(str(path), picture[..., ::-1])
        for form in FORMS:
            model = run / f"model_{form}.tflite"
            seen = seen_by_mediapipe(python, model, paths, read_description(models[form]).labels)
            told = subprocess.run([python, script, model, *paths], capture_output=True, text=True, check=True).stderr
            yield "MediaPipe Tasks", form, (seen, float(told.splitlines()[-1]))


def by_litert_js(models: dict[str, bytes], pictures: Sequence[Picture]) -> Any:
    """LiteRT.js in Chromium, WebAssembly; int8 at the ends is refused by it."""
    executable = find_chromium()
    if executable is None or not (NODE_MODULES / "@litertjs/core").is_dir():
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made, litert_page(executable, Path(made)) as page:
        for form in ("float32", "float32_raw", "int8"):
            seen, times = detect_in_browser(page, Path(made), form, models[form], pictures)
            yield "LiteRT.js 2.5.3, wasm", form, (seen, statistics.median(times))


def saved_model(folder: Path, size: int) -> Detect:
    """TensorFlow's own runtime, one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    detect = tf.saved_model.load(str(folder)).signatures["serving_default"]

    def seen(picture: Picture) -> Detections:
        raw = detect(image=tf.constant(as_input(picture, np.float32)))
        return of_four({name: tensor.numpy() for name, tensor in raw.items()}, size)

    return seen


def compared(name: str, form: str, wanted: Sequence[Detections], seen: Sequence[Detections], ms: float) -> Row:
    """What a runtime saw, against what LiteRT's Interpreter sees by the file with suppression."""
    boxes, scores, shifts = 0, [0.0], [0.0]
    for ours, theirs in zip(wanted, seen, strict=True):
        clear = ours.above(LEAST)
        boxes += theirs.above(LEAST).scores.size
        shift = np.abs(clear.boxes[:, None] - theirs.boxes[None]).max(axis=2, initial=0)
        shift[clear.class_ids[:, None] != theirs.class_ids[None]] = np.inf
        for place in range(clear.scores.size if theirs.scores.size else 0):
            best = int(shift[place].argmin())
            if shift[place, best] <= 2:
                shifts.append(float(shift[place, best]))
                scores.append(abs(float(clear.scores[place] - theirs.scores[best])))
    pairs = len(scores) - 1
    return Row(runtime=name, form=form, boxes=boxes, paired=pairs, score=max(scores), box_px=max(shifts), ms=ms)


def not_run(models: dict[str, bytes]) -> Any:
    """A line for each runtime that cannot be run here."""
    for name, runtime in RUNTIMES.items():
        for form in ("int8", "int8_raw", *(() if runtime.is_int8_only else ("float16_raw",))):
            left = left_to_cpu(models[form], is_int8=True).get(name)
            said = "takes every operator" if left is None else f"leaves {', '.join(left)} to the CPU, or refuses"
            yield f"| {name} | {form} | {said} | {runtime.source}, read {runtime.read} |"


if __name__ == "__main__":
    main()
