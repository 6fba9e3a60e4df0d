"""What is asked of the trainer: a run of a job, a fold of an audit, and what may change about a run afterwards."""

import operator
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from shared.errors import OptionError
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name
from shared.specs.options import Option, words
from shared.specs.training import BACKBONE_OPTION, Backbone, Nms, TrainingOptions

# More folds cost more trainings, each with hardly more photos to learn from.
MOST_FOLDS: Final = 10


class FoldOptions(TrainingOptions):
    """Options of the trainings of an audit, which select nothing by the validation split and export nothing.

    Nor do they continue a trained network, which may have learned the labels that it would judge.
    """

    start: None = None
    final: bool = False
    stop_at_map: float | None = None
    patience: int | None = None
    quantize: Literal["ptq", "qat"] = "ptq"
    max_drop: float = 1.0
    nms: Annotated[Nms, Field(exclude_if=lambda nms: nms == "inside")] = "inside"


class RunSpec(TrainingOptions):
    """The request for a training run of a job; saved as `runs/<run>/request.json` before the trainer gets a hint.

    `incarnation` is that of the job. `kind` no longer means anything; version 0.1.0 wrote it, and digests contain it.
    A run with a `fold` (one of `folds`) of an audit learns from all photos except its part, and detects in that part.
    A run that `audits` other runs trains nothing: it compares what they saw with the labels, once they are done.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name
    job: Name
    incarnation: Incarnation = ""
    kind: Literal["train"] = "train"
    # No `auto` here: the backbone is chosen when the run is asked for.
    backbone: Annotated[Backbone, BACKBONE_OPTION] = "conv"
    # The next three are not in the digests of ordinary runs.
    fold: Annotated[int, Field(ge=0, exclude_if=operator.not_)] = 0
    folds: Annotated[int, Field(ge=0, le=MOST_FOLDS, exclude_if=operator.not_)] = 0
    audits: Annotated[tuple[Name, ...], Field(exclude_if=operator.not_)] = ()

    @model_validator(mode="after")
    def _fold_is_one_of_them(self) -> Self:
        if not 0 <= self.fold <= self.folds or self.folds == 1:
            raise ValueError(f"fold {self.fold} of {self.folds}: expected one of two or more")
        return self

    @property
    def has_model(self) -> bool:
        """Whether the run ends with a model to hand out, which a fold of an audit and its analysis do not."""
        return not self.fold and not self.audits

    @property
    def int8_file(self) -> str:
        """The name of the int8 model that the run hands out; of two, the one with suppression inside."""
        return "model_int8_raw.tflite" if self.nms == "outside" else "model_int8.tflite"

    def trains_as(self, other: "RunSpec") -> bool:
        """Whether both ask for the same training, however its weights are exported and judged."""
        exported = set(ReleaseOptions.model_fields)
        return self.model_dump(exclude=exported) == other.model_dump(exclude=exported)


class ReleaseOptions(Frozen):
    """What a person may change about a finished run's export and evaluation; None leaves a field as it was."""

    quantize: Annotated[
        Literal["ptq", "qat"] | None,
        Option("How int8 is made from now on: ptq calibrates, qat fine-tunes for it first.", "Output"),
    ] = None
    max_drop: Annotated[
        float | None, Option("Points of mAP50 that int8 may lose from now on.", "Output"), Field(ge=0, le=100)
    ] = None
    nms: Annotated[
        Nms | None, Option("Where NMS is from now on: inside the files, outside, or files of both kinds.", "Output")
    ] = None

    def applied_to(self, asked: RunSpec) -> RunSpec:
        """The request `asked` with these changes.

        Raises:
            OptionError: The changes do not fit the rest of the request.
        """
        try:
            return RunSpec.model_validate(asked.model_dump() | self.model_dump(exclude_none=True))
        except ValidationError as error:
            raise OptionError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error

    @classmethod
    def between(cls, before: RunSpec, now: RunSpec) -> Self:
        """The changes from the request `before` to `now`, for a run that trains the same."""
        asked = {name: getattr(now, name) for name in cls.model_fields if getattr(now, name) != getattr(before, name)}
        return cls(**asked)

    @property
    def typed(self) -> list[str]:
        """The words of the command line that ask for these changes; none if nothing changes."""
        return words(self, type(self))
