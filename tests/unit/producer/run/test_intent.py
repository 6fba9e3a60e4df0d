"""What a submit says before it does anything: the network that it chooses, and what a run goes on from."""

import pytest

from producer.run.intent import choice_text, run_intent, start_text
from shared.jobs.job import Job
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.golden.regenerate import GOLDEN

FEW = {"train": 142, "val": 20, "test": 40, "objects_kept": 217}
MANY = {"train": 1420, "val": 200, "test": 400, "objects_kept": 2170}


def test_few_photos_are_said_to_start_from_a_pretrained_network() -> None:
    line = choice_text(TrainingOptions(), FEW, None)
    start = "\nstarts from EfficientNet-Lite0, pretrained on ImageNet, because there are only 142 training photos; "
    assert line.startswith(f"{start}`--backbone conv` ")


def test_many_photos_are_said_to_begin_from_nothing() -> None:
    assert choice_text(TrainingOptions(), MANY, None) == (
        "\nstarts with random weights, because 1,420 training photos and their objects are enough for that; "
        "`--backbone efficientnet_lite0` starts from ImageNet's weights, and its model is 3 times as slow on the device"
    )


@pytest.mark.parametrize(
    ("typed", "counts"),
    [
        (None, FEW),
        (TrainingOptions(), {}),
        (TrainingOptions(backbone="conv"), FEW),
        (TrainingOptions(backbone="efficientnet_lite0"), FEW),
        (TrainingOptions(model="nano"), MANY),
        (TrainingOptions(model="nano", backbone="conv"), FEW),
        (TrainingOptions(backbone="mobilenet_v2", weights="imagenet"), FEW),
    ],
)
def test_nothing_is_said_where_nothing_is_chosen(typed: TrainingOptions | None, counts: dict[str, int]) -> None:
    assert choice_text(typed, counts, None) == ""


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"model": "nano"}, "--model nano"),
        ({"model": "medium", "quantize": "qat"}, "--model medium and --quantize qat"),
        ({"quantize": "qat"}, "--quantize qat"),
    ],
)
def test_options_that_cost_few_photos_their_pretrained_start_are_named(asked: dict[str, str], named: str) -> None:
    line = choice_text(TrainingOptions.model_validate(asked), FEW, None)
    assert line == (
        f"\nstarts with random weights because of {named}; without that, 142 training photos would start from "
        "EfficientNet-Lite0, pretrained on ImageNet, which is usually more accurate"
    )
    assert TrainingOptions().with_backbone(FEW, None).backbone == "efficientnet_lite0"


def test_a_run_that_is_there_keeps_its_network_without_a_word() -> None:
    known = RunSpec(run="r", job="j")
    assert choice_text(TrainingOptions(), FEW, known) == ""
    assert choice_text(TrainingOptions(backbone="mobilenet_v2"), FEW, known) == ""


@pytest.mark.parametrize("backbone", ["mobilenet_v2", "mobilenet_v3_small"])
def test_random_weights_of_a_published_network_are_said(backbone: str) -> None:
    line = choice_text(TrainingOptions.model_validate({"backbone": backbone}), MANY, None)
    assert line == f"\n{backbone} begins with random weights; `--weights imagenet` downloads ImageNet's"


def test_a_training_from_nothing_goes_on_from_nothing(tmp_path: object) -> None:
    storage = Storage(str(tmp_path))
    assert start_text(None, ["cat"], storage) == start_text(TrainingOptions(), ["cat"], storage) == ""


def test_a_further_run_says_of_which_photos_and_for_how_long(tmp_path: object) -> None:
    job = Job.model_validate_json((GOLDEN / "store-0.1.0/jobs/upgraded/job.json").read_text(encoding="utf-8"))
    photos = sum(plan.pairs for plan in job.splits.values())
    text = run_intent("two", job, TrainingOptions(backbone="conv", max_minutes=7.5), Storage(str(tmp_path)))
    expected = f"run two: the shards of job upgraded, {photos:,} photos with {len(job.labels)} classes"
    assert text == f"{expected} → training of small, up to 7.5 min"
    unbound = TrainingOptions(backbone="conv", max_minutes=None, epochs=3, model="nano")
    assert run_intent("two", job, unbound, Storage(str(tmp_path))).endswith("→ training of nano, 3 epochs")
