"""`submit --from` and `--weights`: a trained network is looked at, refused or kept, without TensorFlow."""

import io
import json
import os
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from producer.cli.from_network import with_start_network
from producer.cli.weights import stored_weights
from producer.doctor.disk import prunable
from producer.state.stored import load_job
from shared.errors import OptionError
from shared.jobs.paths import labels_of
from shared.specs.data import JobSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.unit.producer.cli.test_submit import submit

CLASSES = ("circle", "square")


def keras_file(
    name: str = "detector_nano", first: str = "stem", classes: int = 2, side: int = 64, more: Sequence[Any] = ()
) -> bytes:
    """A `.keras` as far as the producer looks: its description is true to life, its weights are not."""
    convolutions = {first: 8}
    for stride in (8, 16, 32):
        convolutions |= {f"boxes_{stride}_out": 4, f"scores_{stride}_out": classes}
    layers = [{"class_name": "InputLayer", "config": {"name": "image", "batch_shape": [None, side, side, 3]}}]
    layers += [{"class_name": "Conv2D", "config": {"name": name, "filters": at}} for name, at in convolutions.items()]
    return zipped({"config.json": json.dumps({"config": {"name": name, "layers": [*layers, *more]}}).encode()})


def zipped(files: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", packing) as archive:
        for name, content in {"model.weights.h5": b"\x89HDF", **files}.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return target.getvalue()


def trained_run(
    store: Path, run: str = "old", labels: Sequence[str] = CLASSES, resize: str = "stretch", **network: Any
) -> Path:
    """The folder of a finished run, as far as `--from` looks."""
    folder = store / "runs" / run
    folder.mkdir(parents=True)
    (folder / "request.json").write_text("{}")
    (folder / "run.json").write_text(json.dumps({"resize": resize}))
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    (folder / "model.keras").write_bytes(keras_file(classes=len(labels), **network))
    return folder


def asked(storage: Storage, start: str, typed: Sequence[str] = (), **options: Any) -> tuple[JobSpec, TrainingOptions]:
    spec = {name: options.pop(name) for name in ("image_size", "resize") if name in options}
    training = TrainingOptions.model_validate({"start": start, **options})
    return with_start_network((JobSpec.model_validate(spec), training), typed, storage)


LITE0_LAST = {"class_name": "Conv2D", "config": {"name": "lite0_block15_project", "filters": 320}}


@pytest.mark.parametrize(
    ("first", "more", "backbone"),
    [
        ("stem", [], "conv"),
        ("lite0_stem", [LITE0_LAST], "efficientnet_lite0"),
        ("lite0_stem", [], "efficientnet_lite0_short"),
        ("lite2_stem", [], "efficientnet_lite2"),
        ("Conv1", [], "mobilenet_v2"),
    ],
)
def test_a_run_its_folder_and_its_file_are_one_start(
    tmp_path: Path, first: str, more: list[Any], backbone: str
) -> None:
    storage = Storage(str(tmp_path / "store"))
    folder = trained_run(tmp_path / "store", first=first, more=more, resize="letterbox")
    spec, training = asked(storage, "old")
    assert (training.backbone, training.model, training.weights) == (backbone, "nano", "none")
    assert (spec.image_size, spec.resize) == (64, "letterbox")
    assert training.start is not None
    assert storage.read(training.start) == (folder / "model.keras").read_bytes()
    assert storage.read(labels_of(training.start)).decode() == "circle\nsquare\n"
    for place in (folder, folder / "model.keras", storage.local_path(training.start)):
        assert asked(storage, str(place))[1] == training, "the same, whatever way it is named"


def test_a_corrected_list_of_classes_counts_and_an_earlier_run_keeps_its_own(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    folder = trained_run(tmp_path / "elsewhere", labels=("cat", "dog"))
    first = asked(storage, str(folder))[1].start
    (folder / "labels.txt").write_text("dog\ncat\n")
    second = asked(storage, str(folder))[1].start
    assert first is not None
    assert second is not None
    assert storage.read(labels_of(first)) == b"cat\ndog\n"
    assert storage.read(labels_of(second)) == b"dog\ncat\n"
    assert storage.read(second) == storage.read(first)
    for start in (str(folder), str(storage.local_path(second))):
        assert asked(storage, start)[1].start == second


def test_what_is_there_of_a_removed_job_is_not_pruned_before_the_job_that_asks_for_it_now(tmp_path: Path) -> None:
    storage, folder = Storage(str(tmp_path / "store")), trained_run(tmp_path / "elsewhere", labels=("cat", "dog"))
    start = asked(storage, str(folder))[1].start
    assert start is not None
    for path in (tmp_path / "store/weights").iterdir():
        os.utime(path, (0, 0))
    assert {each.key for each in prunable(storage)} == {start, labels_of(start)}
    assert asked(storage, str(folder))[1].start == start
    assert prunable(storage) == []


def test_the_network_of_from_stays_after_its_run_is_removed_and_is_not_pruned(tmp_path: Path, small_voc: Path) -> None:
    store = tmp_path / "store"
    folder = trained_run(store, labels=("circle", "square"))
    done = submit(small_voc, store, "--from", "old")
    assert done.returncode == 0, done.stderr
    line = (
        "goes on from old (nano, conv) with 33% of the steps (at least 400) and 75% of the learning rate of a new "
        "training; keeps circle; new: cross, triangle; left out: square\n"
    )
    assert done.stderr.index(line) < done.stderr.index("objects read")
    storage = Storage(str(store))
    job = load_job(storage, "j")
    assert job.run is not None
    assert job.run.start is not None
    assert (job.spec.image_size, job.run.model, job.run.backbone) == (64, "nano", "conv")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    storage.create("weights/0123456789abcdef-unused.keras", b"unused")
    for path in (store / "weights").iterdir():
        os.utime(path, (0, 0))
    unused = [each.key for each in prunable(storage) if each.kind == "weights"]
    assert unused == ["weights/0123456789abcdef-unused.keras"]
    again = submit(small_voc, store, "--from", str(storage.local_path(job.run.start)))
    assert again.returncode == 0, again.stderr
    assert load_job(storage, "j") == job


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "small"), "--from old goes on with its own network, --model nano; found --model small"),
        (("--backbone", "efficientnet_lite0"), "--backbone conv; found --backbone efficientnet_lite0"),
        (("--image-size", "96"), "--image-size 64; found --image-size 96"),
        (("--resize", "letterbox"), "--resize stretch; found --resize letterbox"),
        (("--backbone", "mobilenet_v2", "--weights", "imagenet"), "--from old brings its own weights"),
        (("--no-train",), "--no-train: expected no option of a training, found --from"),
    ],
    ids=str,
)
def test_options_that_ask_for_another_network_are_one_line(
    tmp_path: Path, small_voc: Path, options: tuple[str, ...], said: str
) -> None:
    trained_run(tmp_path)
    done = submit(small_voc, tmp_path, "--from", "old", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "jobs").exists()
    assert submit(small_voc, tmp_path, "--from", "old", "--model", "nano", "--image-size", "64").returncode == 0


def bomb() -> bytes:
    """A description of 40 MB of blanks in 40 kB."""
    return zipped({"config.json": b" " * 40_000_000}, zipfile.ZIP_DEFLATED)


WRONG = {
    "no zip": (b"weights", "expected a .keras file of a whole network"),
    "cut": (keras_file()[:-30], "expected a .keras file of a whole network"),
    "no description": (zipped({}), "expected a .keras file of a whole network"),
    "a bomb": (bomb(), "at most 8,388,608 are read"),
    "a list": (zipped({"config.json": b"[1]"}), "expected a .keras file of a whole network"),
    "nested": (zipped({"config.json": b"[" * 100_000}), "expected a .keras file of a whole network"),
    "another network": (keras_file(name="mobilenetv2_0.35_64"), "found a network 'mobilenetv2_0.35_64' of 8 layers"),
    "another backbone": (keras_file(first="resnet"), "expected a detector that voc2tflite trained"),
    "other heads": (keras_file(more=[{"config": {"name": "boxes_8_out", "filters": 5}}]), "expected a detector"),
    "fewer classes": (keras_file(classes=1), "expected its 1 class name in labels.txt beside it, found 2 names"),
}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_what_was_found(tmp_path: Path, content: bytes, said: str) -> None:
    (trained_run(tmp_path) / "model.keras").write_bytes(content)
    with pytest.raises(OptionError, match=r"^--from old: ") as raised:
        asked(Storage(str(tmp_path)), "old")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "weights").exists()


def test_a_run_that_is_not_there_or_not_trained_is_said(tmp_path: Path) -> None:
    folder = trained_run(tmp_path)
    storage = Storage(str(tmp_path))
    with pytest.raises(OptionError, match=r"--from older: expected a run of the store \(there are: old\)"):
        asked(storage, "older")
    (folder / "labels.txt").unlink()
    with pytest.raises(OptionError, match=r"2 class names in labels\.txt beside it, found no such file"):
        asked(storage, "old")
    (folder / "model.keras").unlink()
    with pytest.raises(OptionError, match=r"it is not trained to its end"):
        asked(storage, "old")


def mobilenet(channels: int, *more: str) -> bytes:
    layers = [{"config": {"name": "block_16_project", "filters": channels}}]
    layers += [{"config": {"name": name}} for name in more]
    return zipped({"config.json": json.dumps({"config": {"name": "mobilenetv2", "layers": layers}}).encode()})


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.keras", keras_file(), "block_16_project has 160 channels, found a network 'detector_nano' of 8 layers"),
        ("a.keras", keras_file(), "--from goes on from a detector"),
        ("a.keras", mobilenet(112), "112 (small needs another width)"),
        ("a.keras", mobilenet(160, "predictions"), "with a layer predictions on top"),
        ("a.keras", b"weights", "expected a .keras file of a whole network"),
        ("a.h5", struct.pack("<Q", 7), "expected HDF5, found a file that begins with"),
    ],
)
def test_weights_of_another_network_are_refused_at_submit(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    options = TrainingOptions(backbone="mobilenet_v2", weights=str(tmp_path / name))
    with pytest.raises(OptionError) as raised:
        stored_weights(options, Storage(str(tmp_path / "store")))
    assert said in str(raised.value)


def test_the_right_ones_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.keras").write_bytes(mobilenet(160))
    options = TrainingOptions(backbone="mobilenet_v2", weights=str(tmp_path / "a.keras"))
    assert stored_weights(options, Storage(str(tmp_path / "store"))).endswith("-a.keras")
