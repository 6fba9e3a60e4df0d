"""TensorFlow is started once for all of the trainer's tests, with four logical CPU devices and two threads."""

import cv2
import pytest
import tensorflow as tf

from tests.unit.trainer.exported import Exported, make_exported

REPLICAS = 4

_cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_cpu, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
cv2.setNumThreads(1)


@pytest.fixture(scope="session")
def exported() -> Exported:
    """A tiny network, exported into all forms once a session."""
    return make_exported()
