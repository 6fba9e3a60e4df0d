"""Trained Keras model -> four `.tflite` forms with non-maximum suppression inside, and Keras's own two formats.

The weights go into the graph as constants: a function that captures live Keras 3 variables converts "successfully" into
a model without weights (docs/decisions/0018).
"""

import logging
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from shared.model.description import Decoding, ModelDescription
from shared.specs.training import Nms
from trainer.network.detector import CENTER_SCALE, PRIOR_STRIDES, SIZE_SCALE, STRIDES, make_priors
from trainer.network.postprocess import LEAST_SCORE, MOST_DETECTIONS, NMS_IOU
from trainer.pixels import normalize
from trainer.tensors import Tensor
from trainer.tflite.bias_correction import correct_biases
from trainer.tflite.metadata import with_metadata
from trainer.tflite.output_graph import LIFTED, LOGIT_LIFT, POSTPROCESS_OP
from trainer.tflite.serving import save_serving

logger = logging.getLogger(__name__)

Form = Literal["float32", "float16", "dynamic", "int8"]
FORMS: Final[tuple[Form, ...]] = ("float32", "float16", "dynamic", "int8")

# The suffix of a form without suppression.
RAW: Final = "_raw"

# How the outputs of a file without suppression are decoded, which `TFLite_Detection_PostProcess` does in the others.
DECODING: Final = Decoding(
    strides=STRIDES,
    prior_strides=PRIOR_STRIDES,
    center_scale=CENTER_SCALE,
    size_scale=SIZE_SCALE,
    score_lift=LOGIT_LIFT,
    least_score=LEAST_SCORE,
    nms_iou=NMS_IOU,
    most_detections=MOST_DETECTIONS,
)

# With more pictures no range of BCCD's network changes by more than a step; each adds about 30 ms to a calibration.
CALIBRATION_IMAGES: Final = 128

# On how many pictures the means of activations are measured (`trainer/tflite/bias_correction.py`).
CORRECTION_IMAGES: Final = 32

# The operator suppresses on logits: a sigmoid before it would be int8, in steps of 1/256, and rank everything that
# scores below 0.05 with a dozen values (it cost BCCD's platelets 11 points of AP50; docs/decisions/0019).
LEAST_LOGIT: Final = math.log(LEAST_SCORE / (1 - LEAST_SCORE)) + LOGIT_LIFT

# The file of the network that was fine-tuned with int8's rounding in it.
QAT_WEIGHTS_FILE: Final = "model_qat.keras"

CalibrationPictures = Callable[[], Iterable[NDArray[np.uint8]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """What is exported; `keras_model` is as `build_model` makes it.

    `fine_tuned`, from `trainer/training/qat.py`, is what int8 is made from; without it int8 is made by calibration.
    """

    keras_model: keras.Model
    description: ModelDescription
    fine_tuned: keras.Model | None = None

    @property
    def priors(self) -> NDArray[np.float32]:
        """The priors for the model's picture size, from `make_priors`."""
        return make_priors(self.description.image_size)


def export_forms(
    model: TrainedModel,
    calibration: CalibrationPictures,
    progress: Callable[[Form], None],
    forms: Sequence[Form] = FORMS,
    *,
    is_raw: bool = False,
) -> dict[str, bytes]:
    """As `convert_forms`, without a frozen SavedModel made before."""
    with tempfile.TemporaryDirectory(prefix="voc-export-") as folder:
        save_frozen(model, Path(folder))
        return convert_forms(model, Path(folder), calibration, progress, forms, is_raw=is_raw)


def save_keras(model: TrainedModel, folder: Path) -> None:
    """Save a model in Keras's two formats, `model.keras` and `saved_model/`; a fine-tuned one as `model_qat.keras`."""
    model.keras_model.save(folder / "model.keras")
    if model.fine_tuned is not None:
        model.fine_tuned.save(folder / QAT_WEIGHTS_FILE)
    with tf.device("/CPU:0"):
        save_serving(_detect_function(model), model.description, folder / "saved_model")


def convert_forms(
    model: TrainedModel,
    saved_model: Path,
    calibration: CalibrationPictures,
    progress: Callable[[Form], None],
    forms: Sequence[Form] = FORMS,
    *,
    is_raw: bool = False,
) -> dict[str, bytes]:
    """Convert a model into `forms`, metadata included.

    Args:
        model: The trained network.
        saved_model: What `save_frozen` made of it.
        calibration: Gives stored training pictures, each uint8 [H, W, 3], RGB; up to `CALIBRATION_IMAGES` are used, and
            up to `CORRECTION_IMAGES` to correct the biases of the int8 and dynamic forms (not after QAT).
        progress: Called with each form before it is made.
        forms: The forms to make.
        is_raw: Make each form without suppression too, from the same conversion.

    Returns:
        The bytes of the `.tflite` files by form, in the order of `forms`, then those without suppression.

    Raises:
        ExportError: The converter made a file that clients cannot load.
    """
    files: dict[str, bytes] = {}
    raw_files: dict[str, bytes] = {}
    exact: bytes | None = None
    for form in forms:
        progress(form)
        if form == "int8" and model.fine_tuned is not None:
            content = _convert_fine_tuned(model)
        else:
            content = _convert(saved_model, form, calibration)
        if form == "float32":
            exact = content
        elif form == "dynamic" or (form == "int8" and model.fine_tuned is None):
            exact = exact or _convert(saved_model, "float32", None)
            content = correct_biases(content, exact, representative(islice(calibration(), CORRECTION_IMAGES)))
        files[form] = with_metadata(content, replace(model.description, form=form))
        logger.info("form_exported", extra={"form": form, "size_bytes": len(files[form])})
        if is_raw:
            raw_files[f"{form}{RAW}"] = _without_suppression(content, form, model.description)
    return files | raw_files


def _without_suppression(content: bytes, form: Form, description: ModelDescription) -> bytes:
    """A converted file without suppression, metadata included."""
    return with_metadata(content, replace(description, form=f"{form}{RAW}", decoding=DECODING))


def forms_of(nms: Nms) -> tuple[str, ...]:
    """The forms that are handed out for a choice of `nms`."""
    raw = tuple(f"{form}{RAW}" for form in FORMS)
    return {"inside": FORMS, "outside": raw, "both": FORMS + raw}[nms]


def save_frozen(model: TrainedModel, folder: Path) -> None:
    """Save a model as a SavedModel with constant weights and detections as outputs, which the converter reads.

    It has only one signature, because a second one would change the order of the converted graph. `serving_default`:
    `image` float32 [1, H, W, 3], RGB in [-1, 1] -> `boxes` float32 [1, D, 4], (ymin, xmin, ymax, xmax) in [0, 1];
    `classes` from 0 and `scores`, float32 [1, D]; `count` float32 [1].
    """
    size = model.description.image_size
    with tf.device("/CPU:0"):
        detect = _detect_function(model)
        image = tf.TensorSpec((1, size, size, 3), tf.float32, name="image")
        module = tf.Module()
        module.detect = tf.function(detect, input_signature=[image], autograph=False)
        tf.saved_model.save(module, str(folder), signatures=module.detect.get_concrete_function())


def _detect_function(model: TrainedModel) -> Callable[[Tensor], dict[str, Tensor]]:
    """A function from an image to the operator's four outputs, with the weights as constants."""
    network = _lifted(model.keras_model)
    # Read outside the trace: inside it they would come from live variables, which the converter drops.
    trainable = [np.asarray(variable) for variable in network.trainable_variables]
    frozen = [np.asarray(variable) for variable in network.non_trainable_variables]
    nms = _postprocess_function(len(model.description.labels))

    def detect(image: Tensor) -> dict[str, Tensor]:
        constants = ([tf.constant(value) for value in values] for values in (trainable, frozen))
        outputs, _ = network.stateless_call(*constants, image, training=False)
        # The operator's column 0 is background; its class ids count from 0 without it. It ignores the values there, so
        # they can keep int8's range from being empty if a network sees nothing anywhere (XNNPACK refuses such a file).
        background = tf.fill(tf.shape(outputs["scores"][..., :1]), LEAST_LOGIT)
        logits = tf.concat([background, outputs["scores"]], axis=-1)
        boxes, classes, best, count = nms(outputs["boxes"], logits, tf.constant(model.priors))
        return {"boxes": boxes, "classes": classes, "scores": best, "count": count}

    return detect


def _lifted(network: keras.Model) -> keras.Model:
    """The network with its logits raised by `LOGIT_LIFT` and cut at zero, by a ReLU that is fused into the convolution.

    Logits range from -20 to 3, but none below -4.6 is ever shown; cut there, int8 has steps three times as fine for the
    rest.
    """
    if any(layer.name == LIFTED for layer in network.layers):
        return keras.Model(
            network.input, {"boxes": network.output["boxes"], "scores": network.get_layer(LIFTED).output}
        )
    rows = []
    for stride in STRIDES:
        logits = network.get_layer(f"scores_{stride}_out").output
        lifted = keras.layers.ReLU(name=f"{LIFTED}_{stride}")(logits + LOGIT_LIFT)
        rows.append(keras.layers.Reshape((-1, logits.shape[-1]), name=f"{LIFTED}_{stride}_rows")(lifted))
    scores = keras.layers.Concatenate(axis=1, name=LIFTED)(rows)
    return keras.Model(network.input, {"boxes": network.output["boxes"], "scores": scores})


def _postprocess_function(num_classes: int) -> Any:
    """Decoding and NMS in TensorFlow, marked so that the converter replaces them with the custom operator."""

    # The first argument must be called `self`, or the converter does not recognise the composite.
    def postprocess(self: Tensor, logits: Tensor, priors: Tensor) -> tuple[Tensor, ...]:
        centre = self[..., :2] / CENTER_SCALE * priors[:, 2:] + priors[:, :2]
        half = tf.exp(self[..., 2:] / SIZE_SCALE) * priors[:, 2:] / 2
        boxes = tf.concat([centre - half, centre + half], axis=-1)[0]
        best, classes = tf.reduce_max(logits[0, :, 1:], axis=-1), tf.argmax(logits[0, :, 1:], axis=-1)
        rows, count = tf.image.non_max_suppression_padded(
            boxes, best, MOST_DETECTIONS, NMS_IOU, LEAST_LOGIT, pad_to_max_output_size=True
        )
        there = tf.cast(tf.range(MOST_DETECTIONS) < count, tf.float32)
        return (
            tf.clip_by_value(tf.gather(boxes, rows), 0.0, 1.0)[None] * there[None, :, None],
            tf.cast(tf.gather(classes, rows), tf.float32)[None] * there[None],
            # The custom operator gives the lifted logit; `trainer/tflite/output_graph.py` adds the sigmoid after it.
            tf.sigmoid(tf.gather(best, rows) - LOGIT_LIFT)[None] * there[None],
            tf.cast(count, tf.float32)[None],
        )

    return tf.function(postprocess, experimental_implements=_implements(num_classes), autograph=False)


def _implements(num_classes: int) -> str:
    """The operator's name and options as the text of a `NameAttrList`."""
    options = {
        "max_detections": f"i: {MOST_DETECTIONS}",
        "max_classes_per_detection": "i: 1",
        # Regular NMS, one suppression per class, forgets class T with T threads (tensorflow#56058), and gives one box
        # under several classes, which MediaPipe merges into one detection (docs/decisions/0019).
        "use_regular_nms": "b: false",
        "nms_score_threshold": f"f: {LEAST_LOGIT}",
        "nms_iou_threshold": f"f: {NMS_IOU}",
        "num_classes": f"i: {num_classes}",
        "y_scale": f"f: {CENTER_SCALE}",
        "x_scale": f"f: {CENTER_SCALE}",
        "h_scale": f"f: {SIZE_SCALE}",
        "w_scale": f"f: {SIZE_SCALE}",
    }
    attributes = [f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in options.items()]
    return " ".join([f'name: "{POSTPROCESS_OP.decode()}"', *attributes])


def _convert(saved_model: Path, form: Form, calibration: CalibrationPictures | None) -> bytes:
    """Convert a frozen model; without `calibration`, int8 takes its ranges from the fake quantization in the graph."""
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model))
    converter.allow_custom_ops = True
    if form != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if form == "int8":
        converter.inference_input_type = tf.uint8
        if calibration is not None:
            converter.representative_dataset = lambda: representative(calibration())
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return bytes(converter.convert())


def _convert_fine_tuned(model: TrainedModel) -> bytes:
    with tempfile.TemporaryDirectory(prefix="voc-qat-") as folder:
        save_frozen(replace(model, keras_model=model.fine_tuned), Path(folder))
        return _convert(Path(folder), "int8", calibration=None)


def representative(pictures: Iterable[NDArray[np.uint8]]) -> Iterator[list[NDArray[np.float32]]]:
    """Calibration samples: [float32 [1, H, W, 3]] in [-1, 1], each made to contain a 0 and a 255.

    Photos alone gave a uint8 input with scale .006275, and clients that feed raw bytes (MediaPipe) got other boxes;
    with both ends of the range in every sample the scale is 1/127.5.
    """
    for picture in islice(pictures, CALIBRATION_IMAGES):
        sample = normalize(picture.astype(np.float32))
        sample[0, 0], sample[0, 1] = -1.0, 1.0
        yield [sample[None]]
