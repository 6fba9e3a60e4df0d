from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.network.batch_norm import EPSILON, BatchNorm
from trainer.network.detector import STRIDES, build_model, decode_boxes, make_priors


def test_priors_are_the_cell_centres_of_the_levels_in_order() -> None:
    priors = make_priors(64)
    assert priors.shape == (8 * 8 + 4 * 4 + 2 * 2, 4)
    np.testing.assert_allclose(priors[0], [4 / 64, 4 / 64, 0.5, 0.5])
    np.testing.assert_allclose(priors[1], [4 / 64, 12 / 64, 0.5, 0.5])
    np.testing.assert_allclose(priors[-1], [48 / 64, 48 / 64, 2.0, 2.0])


def test_zero_outputs_decode_to_the_priors() -> None:
    priors = make_priors(64)
    corners = tf.stack(decode_boxes(tf.zeros((len(priors), 4)), priors), axis=-1).numpy()
    np.testing.assert_allclose((corners[:, :2] + corners[:, 2:]) / 2, priors[:, :2], atol=1e-6)
    np.testing.assert_allclose(corners[:, 2:] - corners[:, :2], priors[:, 2:], rtol=1e-5)


@pytest.mark.parametrize("size", ["nano", "small", "medium"])
def test_a_network_has_one_box_and_one_row_of_scores_for_each_prior(size: str) -> None:
    network = build_model(3, 64, size)  # type: ignore[arg-type]  # parametrized by its values
    outputs = network(tf.zeros((2, 64, 64, 3)), training=False)
    assert tuple(outputs["boxes"].shape) == (2, len(make_priors(64)), 4)
    assert tuple(outputs["scores"].shape) == (2, len(make_priors(64)), 3)
    # A fresh network believes in nothing: about START_SCORE everywhere.
    assert tf.sigmoid(outputs["scores"]).numpy().mean() < 0.05


# Keras 3.15 does not know the `copy` of numpy 2's protocol.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_the_network_is_saved_and_loaded_with_its_weights(tmp_path: Path) -> None:
    network = build_model(2, 64, "nano")
    network.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", compile=False)
    pictures = tf.random.stateless_normal((1, 64, 64, 3), (0, 0))
    for key in ("boxes", "scores"):
        np.testing.assert_allclose(network(pictures)[key], again(pictures)[key], atol=1e-6)


def test_normalization_uses_the_batch_in_training_and_the_moving_statistics_otherwise() -> None:
    layer = BatchNorm()
    values = tf.constant(np.random.default_rng(0).normal(3, 2, (4, 5, 5, 2)), tf.float32)
    trained = layer(values, training=True).numpy()
    np.testing.assert_allclose(trained.mean((0, 1, 2)), 0, atol=1e-4)
    np.testing.assert_allclose(trained.std((0, 1, 2)), 1, atol=1e-2)
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    expected = (values - mean) / np.sqrt(variance + EPSILON)
    np.testing.assert_allclose(layer(values, training=False), expected, rtol=1e-4, atol=1e-5)


def test_strides_divide_every_allowed_picture() -> None:
    assert all(32 % stride == 0 for stride in STRIDES)
