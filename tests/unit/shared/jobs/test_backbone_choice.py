from typing import Any

import pytest

from shared.jobs.specs import FEW_PHOTOS, RunSpec, TrainingOptions


def run_of(**fields: Any) -> RunSpec:
    return RunSpec(run="r", job="j", **fields)


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
    chosen = TrainingOptions(**asked).with_backbone(photos, None if known is None else run_of(**known))
    assert chosen.backbone == backbone
    weights = "imagenet" if backbone == "efficientnet_lite0" else (known or {}).get("weights", "none")
    assert chosen.weights == weights
    assert run_of(**chosen.model_dump()).backbone == backbone


def test_a_run_of_before_there_was_a_choice_is_ours() -> None:
    assert run_of().backbone == "conv"
    with pytest.raises(ValueError, match="backbone"):
        run_of(backbone="auto")
