"""Our head beside those of two peers, at equal multiply-adds: milliseconds, bytes and BCCD's mAP of int8, in one run.

The peers are our own baselines on our own backbone, with ReLU6 throughout: `efficientdet` has three rounds of a BiFPN
and class and box nets of separable convolutions, shared by the levels, nine anchors a cell; `yolo` has our pyramid and
the decoupled head of YOLOv8, two 3x3 convolutions a branch and sides as distributions over 16 bins. Widths are chosen
so that multiply-adds are within 3 % of ours. All learn by our recipe (assignment, loss, augmentation, schedule) on the
train list and are judged on the val list; no test list is read.

Run: `python tests/bench/peer_heads.py` for milliseconds and bytes of fresh weights; with `--steps 600 --image-size 224`
each head is trained (5 to 15 minutes of one core; what is there is not made again).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from numpy.typing import NDArray

from tests.bench.peer_networks import ANCHORS, HEADS, LIFT, Head, build, fitting_width, multiply_adds

BATCH: Final = 8
_ROUNDS: Final = 100
_IN_A_ROW: Final = 5


def convert(head: Head, side: int, pictures: list[NDArray[np.uint8]]) -> bytes:
    """The int8 `.tflite` of a head without suppression, by our own conversion: calibration and corrected biases."""
    import tensorflow as tf

    from trainer.tflite import convert as conversion
    from trainer.tflite.bias_correction import correct_biases

    network = head.handed_out
    weights = [[np.asarray(v) for v in of] for of in (network.trainable_variables, network.non_trainable_variables)]

    def detect(image: Any) -> Any:
        constants = ([tf.constant(value) for value in values] for values in weights)
        return network.stateless_call(*constants, image, training=False)[0]

    with tempfile.TemporaryDirectory() as folder:
        module = tf.Module()
        module.detect = tf.function(detect, input_signature=[tf.TensorSpec((1, side, side, 3), tf.float32)])
        tf.saved_model.save(module, folder, signatures=module.detect.get_concrete_function())
        exact = conversion._convert(Path(folder), "float32", None)
        rounded = conversion._convert(Path(folder), "int8", lambda: iter(pictures))
    samples = conversion.representative(islice(pictures, conversion.CORRECTION_IMAGES))
    return correct_biases(rounded, exact, samples)


def int8_detector(model: bytes, head: Head) -> Any:
    """A detector by LiteRT's Interpreter and decoding in numpy."""
    from ai_edge_litert.interpreter import Interpreter

    from trainer.network.postprocess import decode

    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    (taken,) = interpreter.get_input_details()
    run = interpreter.get_signature_runner()
    ends = {name: detail["index"] for name, detail in run.get_output_details().items()}

    def detect(pictures: NDArray[np.uint8]) -> list[Any]:
        found = []
        for picture in pictures:
            interpreter.set_tensor(taken["index"], picture[None])
            interpreter.invoke()
            boxes, lifted = (interpreter.get_tensor(ends[name])[0] for name in ("boxes", "scores"))
            found.append(decode(head.encode(boxes), lifted - LIFT, head.priors, picture.shape[0]))
        return found

    return detect


def train_row(name: str, *, side: int, steps: int, seed: int, store: str) -> tuple[bytes, dict[str, Any]]:
    """Train a head on BCCD's train list; its int8 file, and its figures on the val list."""
    import keras
    import tensorflow as tf

    from shared.jobs.manifest import Manifest
    from shared.jobs.paths import JobPaths
    from shared.specs.augmentation import Augmentation
    from shared.storage import Storage
    from trainer.data import batches, examples, shard_pictures
    from trainer.evaluation import coco_map, measure
    from trainer.network import postprocess
    from trainer.training import schedule, train_step

    keras.utils.set_random_seed(seed)
    storage = Storage(store)
    manifest = Manifest.model_validate_json(storage.read(JobPaths(f"bccd-{side}").manifest))
    train, val = (
        examples.read_examples(examples.shard_urls(storage, manifest, [split]), side) for split in ("train", "val")
    )
    truth = shard_pictures.truth_from_store(storage, manifest, "val")
    width = None if name == "ours" else fitting_width(name, len(manifest.labels))
    made = partial(build, name, side, len(manifest.labels), width)
    if name == "efficientdet":
        _claim_by_nine(side)
    closed = round(0.75 * steps)
    stream, rest = (
        batches.batches_from_memory(train, batch=BATCH, recipe=Augmentation(mosaic=mosaic), seed=seed, first_step=first)
        for first, mosaic in ((0, 0.5), (closed, 0.0))
    )
    head = made()
    learner = train_step.Learner(lambda: made().trained, head.priors, tf.distribute.get_strategy(), stream.element_spec)
    plan = schedule.Schedule(steps=steps, steps_per_epoch=len(train) // BATCH, peak_rate=2e-3, plateau=0.5)
    for number, batch in zip(range(steps), chain(stream.take(closed), rest), strict=False):
        sums = learner.step(batch, rate=plan.rate(number), number=number)
        if number % 100 == 0 or number + 1 == steps:
            print(name, number, round(sums.total, 3), flush=True)
    train_step.load_average(head.trained, learner.state()["average"])

    def judged(detect: Any, batch: int) -> dict[str, float]:
        seen = coco_map.average_precision(truth, measure.detect_all(detect, val.shard_pictures(), batch=batch))
        return {"map50": round(seen.map50, 4), "map": round(seen.map, 4)}

    model = convert(head, side, [picture.rgb for picture in train.shard_pictures()])
    figures = {"float32": judged(postprocess.keras_detector(head.trained, head.priors), BATCH)}
    figures["int8"] = judged(int8_detector(model, head), 1)
    return model, {"macs": multiply_adds(head.trained), "width": width, **figures}


def _claim_by_nine(side: int) -> None:
    """Have a cell's nine anchors claimed as one of our cells is: by its centre."""
    import tensorflow as tf

    from trainer.network.detector import make_priors

    assignment: Any = import_module("trainer.network.target_assignment")
    claims, priors = assignment.claims, make_priors(side)
    assignment.claims = lambda boxes, is_true, _: tf.repeat(claims(boxes, is_true, priors), len(ANCHORS), axis=-1)


def fresh_row(name: str, *, side: int) -> tuple[bytes, dict[str, Any]]:
    """A head with fresh weights, calibrated on noise: for its time and its bytes."""
    width = None if name == "ours" else fitting_width(name, 3)
    head = build(name, side, 3, width)
    noise = list(np.random.default_rng(0).integers(0, 256, (4, side, side, 3), np.uint8))
    return convert(head, side, noise), {"macs": multiply_adds(head.trained), "width": width}


def times_ms(models: dict[str, bytes], side: int) -> dict[str, float]:
    """Milliseconds of each model on one thread, in turns, without decoding: the 5th percentile.

    On a machine that others use, medians are mostly the time that the others had.
    """
    from ai_edge_litert.interpreter import Interpreter

    picture = np.random.default_rng(0).integers(0, 256, (1, side, side, 3), np.uint8)
    loaded = {name: Interpreter(model_content=model, num_threads=1) for name, model in models.items()}
    for interpreter in loaded.values():
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], picture)
        interpreter.invoke()
    times: dict[str, list[float]] = {name: [] for name in loaded}
    order = list(loaded)
    for _ in range(_ROUNDS):
        order.reverse()
        for name in order:
            for _ in range(_IN_A_ROW):
                start = time.perf_counter()
                loaded[name].invoke()
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: float(np.percentile(measured, 5)) for name, measured in times.items()}


def rows(asked: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Each head with the stem of its files, made in a process of its own if it is not there."""
    if asked.steps:
        from tests.bench.ablation import Row, make_shards

        make_shards(asked.store, "bccd", Row(side=asked.image_size))
    for name in HEADS:
        stem = Path(asked.store) / f"{name}-{asked.image_size}-{asked.steps}-{asked.seed}"
        if not stem.with_suffix(".json").exists():
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)
        yield name, stem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="out/peers")
    parser.add_argument("--image-size", default=320, type=int)
    parser.add_argument("--steps", default=0, type=int, help="Of training; 0: fresh weights.")
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--only", choices=HEADS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    if asked.only:
        do_row(asked)
    else:
        print_table(dict(rows(asked)), asked.image_size)


def do_row(asked: argparse.Namespace) -> None:
    """In a fresh process: make a head's file and its figures."""
    import cv2
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    cv2.setNumThreads(1)
    side = asked.image_size
    if asked.steps:
        model, figures = train_row(asked.only, side=side, steps=asked.steps, seed=asked.seed, store=asked.store)
    else:
        model, figures = fresh_row(asked.only, side=side)
    stem = Path(asked.store) / f"{asked.only}-{side}-{asked.steps}-{asked.seed}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".tflite").write_bytes(model)
    stem.with_suffix(".json").write_text(json.dumps(figures))


def print_table(stems: dict[str, Path], side: int) -> None:
    """A line for each head; milliseconds measured now."""
    models = {name: stem.with_suffix(".tflite").read_bytes() for name, stem in stems.items()}
    times = times_ms(models, side)
    print(f"| head, {side} px | width | multiply-adds | int8 bytes | ms | of ours | float32 mAP50 / mAP | int8 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, stem in stems.items():
        row = json.loads(stem.with_suffix(".json").read_text())
        forms = [row[form] for form in ("float32", "int8") if form in row]
        maps = [f"{100 * form['map50']:.1f} / {100 * form['map']:.1f}" for form in forms]
        cost = f"{row['width'] or '-'} | {row['macs'] / 1e6:.0f} M | {len(models[name]):,} | {times[name]:.2f}"
        print(f"| {name} | {cost} | {times[name] / times['ours']:.2f} | {' | '.join(maps) or '- | -'} |")


if __name__ == "__main__":
    main()
