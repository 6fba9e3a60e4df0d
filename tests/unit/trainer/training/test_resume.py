"""A trainer killed by SIGKILL in the middle of an epoch, and the next one: together they end where one alone does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[4]
STEPS = 120

# A process of its own: the whole detector, checkpoints every second, its step on standard output.
CHILD = """
import sys
from functools import partial
import numpy as np
from shared.leasing.guard import Unguarded
from shared.specs.run import RunSpec
from shared.storage import Storage
from tests.unit.trainer.pictures import drawn_examples
from tests.unit.trainer.training.test_loop import SIDE, training_set
from trainer.training import loop
from trainer.network.detector import build_model
from trainer.training.strategy import make_strategy

class Tells(Unguarded):
    def advance(self, **progress):
        print(progress.get("step"), flush=True)

loop.CHECKPOINT_EVERY_S = 1.0
examples = drawn_examples(24)
spec = RunSpec(run="r", job="j", model="nano", epochs=40, batch=8, backbone=sys.argv[3])
build = partial(build_model, 2, SIDE, "nano", backbone=spec.backbone, weights=spec.weights)
done = loop.Training(
    spec,
    training_set(examples, batch=8, validation=drawn_examples(4, seed=1)),
    strategy=make_strategy(1), storage=Storage(sys.argv[1]), guard=Tells(), build=build,
).run()
np.save(sys.argv[2], np.concatenate([np.ravel(value) for value in done.model.get_weights()]))
"""


def start(store: Path, backbone: str) -> subprocess.Popen[str]:
    store.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CHILD, str(store), str(store / "weights.npy"), backbone]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def steps_of(child: subprocess.Popen[str]) -> list[int]:
    """The steps that the child tells until its end."""
    assert child.stdout is not None
    with child.stdout:
        steps = [int(line) for line in child.stdout if line.strip().isdecimal()]
    assert child.wait() == 0
    return steps


def kill_at(child: subprocess.Popen[str], step: int) -> None:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            if line.strip() == str(step):
                os.kill(child.pid, signal.SIGKILL)
                break
    child.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)  # five processes, each starts TensorFlow
@pytest.mark.parametrize("backbone", ["conv", "efficientnet_lite0"])
def test_a_killed_run_resumed_ends_with_the_weights_of_an_unbroken_one(tmp_path: Path, backbone: str) -> None:
    # Told before each step, and once more when all are done.
    assert steps_of(start(tmp_path / "unbroken", backbone)) == list(range(STEPS + 1))
    broken = tmp_path / "broken"
    for step in (50, 95):  # both in the middle of an epoch of 3 steps
        kill_at(start(broken, backbone), step)
        assert not (broken / "weights.npy").exists()
    steps = steps_of(start(broken, backbone))
    assert 0 < steps[0] <= 95, "from a checkpoint, before the step it was killed in"
    found, expected = np.load(broken / "weights.npy"), np.load(tmp_path / "unbroken" / "weights.npy")
    print(f"resumed at step {steps[0]}; largest difference of a weight {np.abs(found - expected).max():.1e}")
    # The same batches and the same graph on the same number of threads: bit for bit.
    np.testing.assert_array_equal(found, expected)
    assert told(broken) == pytest.approx(told(tmp_path / "unbroken"), rel=1e-6)  # a checkpoint's sums are float32


def told(store: Path) -> np.ndarray:
    """Epoch, step, losses and learning rate of every line of `results.csv`; not its times."""
    lines = (store / "runs/r/results.csv").read_text().splitlines()[1:]
    return np.array([[float(line.split(",")[at]) for at in (0, 1, 3, 4, 5, 6)] for line in lines])
