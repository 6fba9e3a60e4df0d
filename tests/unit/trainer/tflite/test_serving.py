"""`saved_model/` and `model.keras`, opened by plain TensorFlow and plain Keras in processes of their own."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf

from shared.model.description import description_archive
from shared.placement import Resize
from tests.cluster import REPOSITORY
from tests.unit.trainer.exported import LABELS, Exported
from tests.unit.trainer.hostile import without_archive
from trainer.inference.detector import Detector, fit
from trainer.pixels import Picture, as_input
from trainer.tflite.convert import save_keras
from trainer.tflite.serving import _fit

# Keras 3.15's save() turns TensorFlow variables into numpy arrays in a way that numpy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")

# A photo is decoded and shrunk by another library: pixels differ by one or two.
SCORE, SHARE = 0.03, 0.02

SERVE = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
with open(sys.argv[2], "rb") as photo:
    seen = model.signatures["jpeg"](jpeg=tf.constant([photo.read()]))
kinds = {name: [tensor.dtype.name, tensor.shape.rank] for name, tensor in seen.items()}
names = [name.decode() for name in seen["names"].numpy()[0]]
values = {name: seen[name].numpy().tolist() for name in ("boxes", "classes", "scores", "count")}
json.dump({"kinds": kinds, "names": names, **values}, sys.stdout)
"""


@pytest.fixture(scope="module")
def saved(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save_keras(exported.model, folder)
    return folder


def elsewhere(code: str, *words: str, ours: bool = False) -> str:
    """What a script prints in a fresh process, in which nothing of this project can be imported unless it is `ours`."""
    command = [sys.executable, "-P", "-c", code, *words]
    where = {"PATH": "/usr/bin:/bin", "TF_CPP_MIN_LOG_LEVEL": "3"} | ({"PYTHONPATH": str(REPOSITORY)} if ours else {})
    done = subprocess.run(command, env=where, cwd="/", capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def photo_of(exported: Exported, sides: tuple[int, int]) -> Picture:
    """A picture of the set as a photo of other sides (width, height)."""
    grown = cv2.resize(exported.pictures[1].rgb[..., ::-1], sides, interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(grown).astype(np.uint8)


@pytest.mark.parametrize("sides", [(320, 200), (50, 90)])
@pytest.mark.parametrize("resize", ["letterbox", "stretch"])
def test_plain_tensorflow_answers_a_jpeg_with_named_detections(
    resize: Resize, sides: tuple[int, int], exported: Exported, tmp_path: Path
) -> None:
    description = replace(exported.model.description, resize=resize)
    save_keras(replace(exported.model, description=description), tmp_path)
    photo = photo_of(exported, sides)
    (tmp_path / "photo.jpg").write_bytes(cv2.imencode(".jpg", photo, [cv2.IMWRITE_JPEG_QUALITY, 98])[1].tobytes())
    seen: dict[str, Any] = json.loads(elsewhere(SERVE, str(tmp_path / "saved_model"), str(tmp_path / "photo.jpg")))
    assert seen["kinds"] == {
        "boxes": ["float32", 3],
        "classes": ["float32", 2],
        "scores": ["float32", 2],
        "count": ["float32", 1],
        "names": ["string", 2],
    }
    count = int(seen["count"][0])
    assert set(seen["names"][count:]) <= {""}
    assert [LABELS[int(place)] for place in seen["classes"][0][:count]] == seen["names"][:count]

    whole = resized_model(exported, resize)
    read = cv2.imread(str(tmp_path / "photo.jpg"))
    assert read is not None
    ours = Detector(whole, is_ours=True).detect(read.astype(np.uint8))
    best = min(ours.scores.size, count, 5)
    assert best == 5
    np.testing.assert_allclose(seen["scores"][0][:best], ours.scores[:best], atol=SCORE)
    width, height = sides
    boxes = np.asarray(seen["boxes"][0])[:count, [1, 0, 3, 2]]
    theirs = ours.boxes[:best] / np.array([width, height] * 2)
    distance = np.abs(boxes[:, None] - theirs[None]).max(axis=2).min(axis=0)
    assert float(distance.max()) <= SHARE


def resized_model(exported: Exported, resize: Resize) -> bytes:
    """The float32 file, described as fitted in another way."""

    bare = without_archive(exported.forms["float32"])
    return bare + description_archive(len(bare), replace(exported.model.description, resize=resize, form="float32"))


def test_the_jpeg_signature_sees_what_the_pixels_show(exported: Exported, saved: Path) -> None:
    model = tf.saved_model.load(str(saved / "saved_model"))
    picture = exported.pictures[0].rgb
    png = tf.io.encode_png(picture).numpy()
    by_bytes = model.signatures["jpeg"](jpeg=tf.constant([png]))
    by_pixels = model.signatures["serving_default"](image=tf.constant(as_input(picture, np.float32)))
    np.testing.assert_allclose(by_bytes["scores"], by_pixels["scores"], atol=1e-6)
    np.testing.assert_allclose(by_bytes["boxes"], by_pixels["boxes"], atol=1e-6)


def test_a_photo_is_fitted_as_our_detector_fits_it(exported: Exported) -> None:
    size = exported.model.description.image_size
    for sides in ((640, 480), (100, 300), (64, 64), (65, 63), (40, 20)):
        photo = photo_of(exported, sides)
        for resize in ("stretch", "letterbox"):
            description = replace(exported.model.description, resize=resize)
            square, _, _ = _fit(tf.constant(photo), description)
            difference = np.abs(np.asarray(square) - fit(photo, size, resize))
            assert float(difference.mean()) < 0.6, (sides, resize)


def test_no_photo_is_refused_by_tensorflow_itself(saved: Path) -> None:
    model = tf.saved_model.load(str(saved / "saved_model"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unknown image file format"):
        model.signatures["jpeg"](jpeg=tf.constant([b"no photo"]))


def test_keras_reloads_the_network_in_a_fresh_process(exported: Exported, saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", as_input(exported.pictures[0].rgb, np.float32))
    code = (
        "import sys, keras, numpy as np, trainer.network.detector\n"
        "model = keras.saving.load_model(sys.argv[1], compile=False)\n"
        "outputs = model(np.load(sys.argv[2]), training=False)\n"
        "np.savez(sys.argv[3], **{name: value.numpy() for name, value in outputs.items()})"
    )
    elsewhere(code, str(saved / "model.keras"), str(tmp_path / "image.npy"), str(tmp_path / "out.npz"), ours=True)
    wanted = exported.model.keras_model(np.load(tmp_path / "image.npy"), training=False)
    found = np.load(tmp_path / "out.npz")
    for name in ("boxes", "scores"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)


def test_keras_alone_names_the_layer_that_it_lacks(saved: Path) -> None:
    code = (
        "import sys, keras\n"
        "try: keras.saving.load_model(sys.argv[1], compile=False)\n"
        "except TypeError as error: print(error)"
    )
    assert "voc2tflite" in elsewhere(code, str(saved / "model.keras"))
