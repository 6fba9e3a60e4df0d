from typing import Any

import pytest

from shared.specs.run import RunSpec
from shared.specs.training import FEW_OBJECTS, FEW_PHOTOS, TrainingOptions


def run_of(**fields: Any) -> RunSpec:
    return RunSpec(run="r", job="j", **fields)


def counts(train: int, objects: int, val: int = 0) -> dict[str, int]:
    return {"train": train, "val": val, "test": 10, "objects_kept": objects, "images": 5000}


@pytest.mark.parametrize(
    ("asked", "photos", "known", "backbone"),
    [
        ({}, FEW_PHOTOS - 1, None, "efficientnet_lite0"),
        ({}, FEW_PHOTOS, None, "conv"),
        ({"backbone": "conv"}, 30, None, "conv"),
        ({"backbone": "mobilenet_v2"}, 1000, None, "mobilenet_v2"),
        ({"backbone": "efficientnet_lite0", "model": "nano"}, 1000, None, "efficientnet_lite0"),
        ({"model": "nano"}, 30, None, "conv"),
        ({"quantize": "qat"}, 30, None, "conv"),
        # What is there goes on as it began, whatever would be chosen today.
        ({}, 30, {}, "conv"),
        ({}, 1000, {"backbone": "efficientnet_lite0"}, "efficientnet_lite0"),
        ({}, 30, {"backbone": "mobilenet_v2", "weights": "weights/0-top.h5"}, "mobilenet_v2"),
    ],
)
def test_auto_is_decided_by_what_there_is(
    asked: dict[str, Any], photos: int, known: dict[str, Any] | None, backbone: str
) -> None:
    chosen = TrainingOptions(**asked).with_backbone(counts(photos, photos), None if known is None else run_of(**known))
    assert chosen.backbone == backbone
    weights = "imagenet" if backbone == "efficientnet_lite0" else (known or {}).get("weights", "none")
    assert chosen.weights == weights
    assert run_of(**chosen.model_dump()).backbone == backbone


@pytest.mark.parametrize(
    ("asked", "of", "backbone"),
    [
        # Of 100 photos 90 are learned from: nine tenths of the objects.
        ({}, counts(90, round(FEW_OBJECTS / 0.9) - 1), "efficientnet_lite0"),
        ({}, counts(90, round(FEW_OBJECTS / 0.9) + 1), "conv"),
        # With --final the validation photos are learned from, too.
        ({}, counts(FEW_PHOTOS - 20, 300, val=20), "efficientnet_lite0"),
        ({"final": True}, counts(FEW_PHOTOS - 20, 300, val=20), "conv"),
        ({"freeze": 1.0, "distil": True}, counts(FEW_PHOTOS - 1, 300), "conv"),
        # A job of a version that did not count.
        ({}, {}, "conv"),
    ],
    ids=str,
)
def test_few_photos_with_many_objects_teach_enough(asked: dict[str, Any], of: dict[str, int], backbone: str) -> None:
    assert TrainingOptions(**asked).with_backbone(of, None).backbone == backbone


@pytest.mark.parametrize("backbone", ["efficientnet_lite0", "efficientnet_lite0_short", "efficientnet_lite2"])
def test_lite_brings_its_weights(backbone: str) -> None:
    assert TrainingOptions.model_validate({"backbone": backbone}).weights == "imagenet"
    with pytest.raises(ValueError, match=f"--backbone {backbone} brings its own, imagenet's"):
        TrainingOptions.model_validate({"backbone": backbone, "weights": "weights/0-top.h5"})


def test_a_run_of_before_there_was_a_choice_is_ours() -> None:
    assert run_of().backbone == "conv"
    with pytest.raises(ValueError, match="backbone"):
        run_of(backbone="auto")


@pytest.mark.parametrize(
    ("asked", "photos", "share"),
    [
        ({"backbone": "efficientnet_lite0"}, 59, 0.5),
        ({"backbone": "efficientnet_lite0"}, 60, 0.0),
        ({"backbone": "efficientnet_lite0_short"}, 30, 0.0),
        ({"backbone": "efficientnet_lite2"}, 30, 0.5),
        ({"backbone": "conv", "distil": True}, 30, 0.5),
        ({"backbone": "conv"}, 30, 0.0),
        ({"backbone": "conv", "augmentation": {"paste": 0.25}}, 1000, 0.25),
        ({"backbone": "efficientnet_lite0", "augmentation": {"paste": 0.0}}, 30, 0.0),
    ],
)
def test_few_photos_get_pasted_objects_unless_a_share_is_asked_for(
    asked: dict[str, Any], photos: int, share: float
) -> None:
    assert TrainingOptions.model_validate(asked).effective_augmentation(photos).paste == share


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({}, "--freeze 0.5 needs a backbone that has learned"),
        ({"backbone": "conv"}, "--freeze 0.5 needs a backbone that has learned"),
        ({"backbone": "mobilenet_v2"}, "--freeze 0.5 needs a backbone that has learned"),
        ({"quantize": "qat"}, "--freeze 0.5 needs a backbone that has learned"),
        ({"backbone": "efficientnet_lite0", "start": "weights/a.keras"}, "--from weights/a.keras: nothing is frozen"),
    ],
)
def test_only_a_backbone_that_has_learned_and_is_new_is_frozen(asked: dict[str, Any], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        TrainingOptions.model_validate(asked | {"freeze": 0.5})


@pytest.mark.parametrize(
    "asked",
    [
        {"backbone": "efficientnet_lite2"},
        {"backbone": "mobilenet_v2", "weights": "imagenet"},
        {"backbone": "conv", "distil": True},
    ],
    ids=str,
)
def test_a_share_to_freeze_is_stored_and_a_run_without_one_is_as_before(asked: dict[str, Any]) -> None:
    spec = run_of(**asked)
    assert "freeze" not in spec.model_dump_json(), "the digests of before"
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    frozen = run_of(**asked, freeze=0.5)
    assert RunSpec.model_validate_json(frozen.model_dump_json()).freeze == 0.5


def test_a_run_of_a_version_that_wrote_its_precision_keeps_it() -> None:
    old = RunSpec.model_validate_json(run_of(precision="float32").to_json())
    for asked in (TrainingOptions(), TrainingOptions(backbone="conv")):
        assert run_of(**dict(asked.with_backbone(counts(2000, 2000), old))) == old
        assert asked.with_backbone(counts(2000, 2000), run_of()).precision is None
    other = TrainingOptions(precision="mixed_bfloat16").with_backbone(counts(2000, 2000), old)
    assert other.precision == "mixed_bfloat16"
