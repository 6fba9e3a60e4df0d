"""A run's request: that of a fold says so, and that of any other run is as before there were folds."""

import pytest
from pydantic import ValidationError

from shared.specs.options import options_of
from shared.specs.run import FoldOptions, ReleaseOptions, RunSpec
from shared.specs.training import TrainingOptions


def test_requests_of_ordinary_runs_do_not_mention_folds() -> None:
    asked = RunSpec(run="r", job="j")
    assert not {"fold", "folds", "audits"} & asked.model_dump().keys()
    assert asked.has_model


def test_requests_with_suppression_inside_are_as_before_there_was_a_choice() -> None:
    asked = RunSpec(run="r", job="j", nms="inside")
    assert "nms" not in asked.model_dump()
    assert asked.digest() == RunSpec(run="r", job="j").digest()
    both = RunSpec(run="r", job="j", nms="both")
    assert RunSpec.model_validate_json(both.to_json()) == both
    assert both.digest() != asked.digest()
    assert both.trains_as(asked), "only what is exported is another"


def test_suppression_can_be_moved_later() -> None:
    asked = RunSpec(run="r", job="j", nms="both")
    assert ReleaseOptions(nms="outside").applied_to(asked).nms == "outside"
    assert ReleaseOptions().applied_to(asked).nms == "both"
    change = ReleaseOptions.between(asked, RunSpec(run="r", job="j"))
    assert change.typed == ["--nms", "inside"]
    assert [asked.int8_file, RunSpec(run="r", job="j", nms="outside").int8_file] == [
        "model_int8.tflite",
        "model_int8_raw.tflite",
    ]


def test_a_backbone_that_no_accelerator_takes_whole_is_refused_before_it_is_trained() -> None:
    with pytest.raises(ValidationError, match="--nms outside is not for --backbone mobilenet_v3_small"):
        RunSpec(run="r", job="j", backbone="mobilenet_v3_small", nms="outside")


def test_folds_and_audits_have_no_model_and_are_read_back() -> None:
    fold = RunSpec(run="r", job="j", fold=2, folds=3)
    audit = RunSpec(run="r", job="j", folds=3, audits=("a", "b"))
    for asked in (fold, audit):
        assert not asked.has_model
        assert RunSpec.model_validate_json(asked.to_json()) == asked
    assert len({fold.digest(), audit.digest(), RunSpec(run="r", job="j").digest()}) == 3


@pytest.mark.parametrize("facts", [{"fold": 4, "folds": 3}, {"fold": 1, "folds": 1}, {"folds": 11}, {"fold": 1}])
def test_a_fold_that_is_none_of_them_is_refused(facts: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        RunSpec(run="r", job="j", **facts)


def test_an_audit_is_not_asked_for_what_its_trainings_cannot_do() -> None:
    left_out = {asked.name for asked in options_of(TrainingOptions)} - {asked.name for asked in options_of(FoldOptions)}
    assert left_out == {"final", "stop_at_map", "patience", "quantize", "max_drop", "nms", "from_"}
