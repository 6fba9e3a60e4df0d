"""TensorFlow is started once for all of the trainer's tests, with four logical CPU devices and two threads."""

import cv2
import pytest
import tensorflow as tf

from tests.unit.trainer.exported import Exported, make_exported

REPLICAS = 4

_cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(_cpu, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
# A replica waits inside its collectives: with fewer threads than replicas (as on one core) all wait for ever.
tf.config.threading.set_inter_op_parallelism_threads(2 * REPLICAS)
cv2.setNumThreads(1)


@pytest.fixture(scope="session")
def exported() -> Exported:
    """A tiny network, exported into all forms once a session."""
    return make_exported()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests are run by hand: `pytest -m slow`."""
    if "slow" in config.option.markexpr:
        return
    for test in items:
        if test.get_closest_marker("slow"):
            test.add_marker(pytest.mark.skip(reason="minutes long: pytest -m slow"))
