"""TensorFlow is started once for all of the trainer's tests, with four logical CPU devices and two threads."""

import hashlib
from collections.abc import Callable, Iterator

import cv2
import pytest
import tensorflow as tf

from tests.unit.trainer.exported import Exported, make_exported
from trainer import release
from trainer.tflite.convert import FORMS, CalibrationPictures, Form, TrainedModel, export_forms

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


@pytest.fixture(scope="session", autouse=True)
def _releases_convert_a_network_once() -> Iterator[None]:
    """Conversion takes most of a release's time, and the same network gives the same bytes (`test_convert.py`).

    So what one release has converted is given to those after it that ask for the same, calibration pictures included.
    """
    known: dict[str, dict[str, bytes]] = {}

    def export_once(
        model: TrainedModel, calibration: CalibrationPictures, progress: Callable[[Form], None], *, is_raw: bool
    ) -> dict[str, bytes]:
        if model.fine_tuned is not None:
            return export_forms(model, calibration, progress, is_raw=is_raw)
        asked = hashlib.sha256(f"{model.description} {is_raw}".encode())
        for values in (*(variable.numpy() for variable in model.keras_model.variables), *calibration()):
            asked.update(values.tobytes())
        key = asked.hexdigest()
        if key not in known:
            known[key] = export_forms(model, calibration, progress, is_raw=is_raw)
        else:
            for form in FORMS:
                progress(form)
        return dict(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "export_forms", export_once)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests are run by hand: `pytest -m slow`."""
    if "slow" in config.option.markexpr:
        return
    for test in items:
        if test.get_closest_marker("slow"):
            test.add_marker(pytest.mark.skip(reason="minutes long: pytest -m slow"))
