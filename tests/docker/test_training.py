"""From photos to a model in containers: a trainer killed mid-epoch, and the demo from an empty folder."""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest

from shared.specs.training import Lite
from tests.docker.stack import Stack, docker, kill_main_process, wait_for

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]


def test_a_trainer_killed_mid_epoch_resumes_and_leaves_one_run(
    stack: Stack, small_set: Path, trainer_built: None
) -> None:
    shutil.copytree(small_set, stack.photos / "small")
    stack.up("--scale", "worker=1")
    stack.submit("/data/small", "--model", "nano", "--image-size", "128", "--epochs", "40")
    run = stack.store / "runs/small"
    wait_for(lambda: any(run.glob("checkpoints/*")), within_s=900, what="a checkpoint")
    trainer = stack.containers("trainer")[0]
    kill_main_process(trainer)
    wait_for((run / "run.json").exists, within_s=900, what="the finished run")
    events = [line["event"] for line in stack.logs("trainer")]
    assert events.count("training_resumed") == 1
    assert events.count("run_finished") == 1
    assert [path.name for path in (stack.store / "runs").iterdir()] == ["small"]


def test_the_demo_makes_its_own_photos_and_ends_with_a_model_on_the_host(stack: Stack, trainer_built: None) -> None:
    # As it is: with fewer minutes than the default the export gate may rightly refuse the model.
    stack.compose("--profile", "demo", "up", "-d", "--no-build", timeout_s=600)
    run = stack.store / "runs/demo"
    wait_for(lambda: any((run / name).exists() for name in ("run.json", "failed.json")), within_s=2400, what="the end")
    assert not (run / "failed.json").exists(), (run / "failed.json").read_text()
    assert (run / "model_int8.tflite").read_bytes()[4:8] == b"TFL3"
    assert set(json.loads((run / "metrics.json").read_text())) >= {"float32", "float16", "dynamic", "int8"}


def test_imagenet_weights_are_in_the_image(trainer_built: None) -> None:
    code = (
        "import sys; from trainer.network.detector import build_model; "
        "[print(build_model(1, 64, 'nano', backbone=name, weights='imagenet').name) for name in sys.argv[1:]]"
    )
    image = "voc2tflite-trainer:0.2.0"
    printed = docker("run", "--rm", "--network", "none", image, "python", "-c", code, *get_args(Lite), timeout_s=300)
    assert printed.split() == ["detector_nano"] * len(get_args(Lite))
