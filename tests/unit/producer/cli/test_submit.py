"""The training options of `submit`: what they ask of the trainer, and how wrong ones are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from producer.cli.weights import stored_weights
from producer.state.stored import load_job
from shared.errors import OptionError
from shared.specs.augmentation import Augmentation
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.tiny import add_tiny_picture, make_tiny_voc
from tests.unit.producer.jobs.test_reuse import work as write_shards


def submit(folder: Path, store: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`producer submit` that only stores the job: there is no broker to be reached."""
    command = [sys.executable, "-m", "producer", "submit", str(folder), "--job", "j", "--store", str(store), *options]
    environment = {**os.environ, "VOC_BROKER_URL": "redis://127.0.0.1:1/0", "VOC_DATA_ROOT": str(folder.parent)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


def test_a_file_of_weights_is_put_into_the_store_once(tmp_path: Path) -> None:
    file = tmp_path / "no_top.weights.h5"
    file.write_bytes(b"\x89HDF\r\n\x1a\nweights")
    storage = Storage(str(tmp_path / "store"))

    def stored(weights: object) -> str:
        return stored_weights(TrainingOptions(backbone="mobilenet_v2", weights=str(weights)), storage)

    key = stored(file)
    assert storage.read(key) == file.read_bytes()
    assert stored(file) == key
    assert key.endswith(".weights.h5")
    assert stored(storage.local_path(key)) == key
    assert [stored(name) for name in ("none", "imagenet")] == ["none", "imagenet"]


@pytest.mark.parametrize(("name", "reason"), [("absent.h5", "no such file"), ("weights.txt", "Keras weights file")])
def test_what_is_no_file_of_weights_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "weights.txt").write_text("")
    options = TrainingOptions(backbone="mobilenet_v2", weights=str(tmp_path / name))
    with pytest.raises(OptionError, match=reason):
        stored_weights(options, Storage(str(tmp_path / "store")))


@pytest.mark.parametrize(
    "fields",
    [
        {"batch": 0},
        {"epochs": 0},
        {"learning_rate": 0},
        {"stop_at_map": 1.5},
        {"patience": 0},
        {"augmentation": {"mosaic": 2}},
        {"augmentation": {"rotate_deg": -1}},
        {"weights": "imagenet"},
        {"final": True, "patience": 3},
        {"final": True, "stop_at_map": 0.5},
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused_at_the_door(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"run": "r", "job": "j", **fields})


def test_a_request_of_before_the_changes_were_asked_for_is_read() -> None:
    assert RunSpec.model_validate({"run": "r", "job": "j"}).augmentation == Augmentation()


def test_few_photos_start_pretrained_and_the_line_says_so(tmp_path: Path, small_voc: Path) -> None:
    told = (
        "training photos; `--backbone conv` starts with random weights, and its model is 3 times as fast on the device"
    )

    def run_of(store: str, *options: str) -> tuple[str, RunSpec, str]:
        done = submit(small_voc, tmp_path / store, *options)
        assert done.returncode == 0, done.stderr
        job = load_job(Storage(str(tmp_path / store)), "j")
        assert job.run is not None
        return done.stderr, job.run, job.request_digest

    shown, run, digest = run_of("auto")
    learned = load_job(Storage(str(tmp_path / "auto")), "j").splits["train"].pairs
    assert (
        f"\nstarts from EfficientNet-Lite0, pretrained on ImageNet, because there are only {learned} {told}\n" in shown
    )
    assert (run.backbone, run.weights) == ("efficientnet_lite0", "imagenet")
    # The same again, and the same typed, is the job that is there.
    for options in ((), ("--backbone", "efficientnet_lite0")):
        shown, _, again = run_of("auto", *options)
        assert told not in shown
        assert again == digest
    shown, run, _ = run_of("conv", "--backbone", "conv")
    assert told not in shown
    assert (run.backbone, run.weights) == ("conv", "none")
    assert run_of("conv")[1] == run, "a job keeps its backbone, whatever would be chosen today"
    shown, _, _ = run_of("mobile", "--backbone", "mobilenet_v2")
    assert "\nmobilenet_v2 begins with random weights; `--weights imagenet` downloads ImageNet's\n" in shown


def test_every_training_option_of_submit_reaches_the_trainer(tmp_path: Path, small_voc: Path) -> None:
    options = (
        "--model nano --backbone mobilenet_v2 --weights imagenet --epochs 7 --max-minutes 3 --batch 4 --seed 5 "
        "--freeze 0.5 "
        "--learning-rate 0.001 --precision mixed_bfloat16 --stop-at-map 0.5 --patience 9 --no-flips --vertical-flips "
        "--quarter-turns --rotate 10 --zoom 0.3 --translate 0.1 --mosaic 0.25 --no-colours --max-drop 2"
    )
    done = submit(small_voc, tmp_path, *options.split())
    assert done.returncode == 0, done.stderr
    asked = RunSpec.model_validate(json.loads((tmp_path / "jobs/j/job.json").read_text())["run"])
    assert asked == RunSpec(
        incarnation=asked.incarnation,
        run="j",
        job="j",
        model="nano",
        backbone="mobilenet_v2",
        weights="imagenet",
        freeze=0.5,
        epochs=7,
        max_minutes=3,
        batch=4,
        learning_rate=0.001,
        precision="mixed_bfloat16",
        seed=5,
        stop_at_map=0.5,
        patience=9,
        max_drop=2,
        augmentation=Augmentation(
            flip_horizontal=0,
            flip_vertical=0.5,
            quarter_turn=0.5,
            rotate_deg=10,
            zoom=0.3,
            translate=0.1,
            mosaic=0.25,
            brightness=0,
            contrast=0,
            saturation=0,
            hue_deg=0,
        ),
    )


def test_what_is_about_to_be_done_is_said_before_it_is_done_and_nothing_is_asked(
    tmp_path: Path, small_voc: Path
) -> None:
    done = submit(small_voc, tmp_path, "--model", "nano", "--max-minutes", "3")
    assert done.returncode == 0, done.stderr
    said = done.stderr.index("job j: 40 photos with 3 classes → shards → training of nano, up to 3 min")
    place = done.stderr.index("it is handed to the broker at redis://127.0.0.1:1/0: it cannot be reached now")
    assert said < place < done.stderr.index("objects read")
    assert "Go on?" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mosaic", "2"), "error: --mosaic 2: "),
        (("--batch", "0"), "error: --batch 0: "),
        (("--stop-at-map", "7"), "error: --stop-at-map 7: "),
        (("--image-size", "33"), "error: --image-size 33: should be a multiple of 32\n"),
        (("--split", "80"), "error: --split 80: expected three shares"),
        (("--rename", "a"), "error: --rename a: expected old=new"),
        (("--weights", "imagenet"), "--backbone"),
        (("--final", "--patience", "3"), "validation"),
        (("--backbone", "mobilenet_v2", "--weights", "absent.h5"), "no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_wrong_option_is_one_clear_line(tmp_path: Path, small_voc: Path, options: tuple[str, ...], said: str) -> None:
    done = submit(small_voc, tmp_path, *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "jobs").exists()


def test_submit_says_how_many_shards_are_reused_and_why_no_more(tmp_path: Path) -> None:
    folder, store = make_tiny_voc(tmp_path / "voc", 160), tmp_path / "store"
    data = ("--no-train", "--image-size", "32")
    first = submit(folder, store, *data)
    assert "0 of 10 shards reused, because the store has no other job" in first.stderr
    storage = Storage(str(store))
    write_shards(storage, load_job(storage, "j"), folder.parent)
    larger = submit(folder, store, "--job", "larger", "--no-train", "--image-size", "64")
    assert "0 of 10 shards reused, because j has other options (--image-size 32)" in larger.stderr
    for number in range(160, 220):
        add_tiny_picture(folder, number)
    grown = submit(folder, store, "--job", "grown", *data)
    assert "6 of 10 shards reused from j; the others not, because photos were added, changed or removed" in grown.stderr


def test_a_known_job_asked_otherwise_is_refused_before_anything_is_said_to_go_on(tmp_path: Path) -> None:
    folder, store = make_tiny_voc(tmp_path / "voc", 6), tmp_path / "store"
    data = ["--no-train", "--shard-images", "8", "--image-size"]
    first = submit(folder, store, *data, "32")
    assert (first.returncode, "it is handed to the broker" in first.stderr) == (0, True)
    other = submit(folder, store, *data, "64")
    assert other.returncode == 1
    assert "goes on" not in other.stderr
    assert "it is handed" not in other.stderr
    said = [line for line in other.stderr.splitlines() if not line.startswith(("scanning", "reading"))]
    assert [line.split(" and is")[0] for line in said] == ["error: job 'j' exists with other options (image_size)"]


def test_photos_set_aside_by_lint_are_not_counted_as_those_of_a_split(tmp_path: Path) -> None:
    folder = make_tiny_voc(tmp_path / "voc", 12)
    for path in sorted(folder.rglob("*.xml"))[:2]:
        path.write_text("<annotation>")
    told = submit(folder, tmp_path / "store", "--split", "100/0/0", "--no-train").stderr
    assert "train 10 images (2 more set aside), " in told
