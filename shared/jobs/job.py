"""What travels on the queue (`ShardTask` with its `PathPair`s), and what was accepted (`Job`)."""

import operator
import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from shared.specs.data import JobSpec
from shared.specs.frozen import SCHEMA_VERSION, Frozen, Incarnation, Name, ShardFormat
from shared.specs.run import RunSpec
from shared.text import one_line

Split = Literal["train", "val", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")


def _relative(path: str) -> str:
    """Refuse what could leave the data root: absolute, empty, `..`, a NUL. A backslash is an ordinary character."""
    if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise ValueError(f"not a plain relative path: {path!r}")
    return path


RelativePath = Annotated[str, StringConstraints(max_length=4096), AfterValidator(_relative)]


def _utf8(path: str) -> str:
    """Refuse what no JSON file can hold: bytes that are not UTF-8, which Python represents as lone surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a path that is not UTF-8: rename the folder") from error
    return path


class PathPair(Frozen):
    """One picture and its annotation, as paths relative to the folder given to `submit`, `/` as separator.

    `annotation` is None for a background picture without XML. `source_id` is unique in its job, from 1, and below
    2**24 because automl's decoder reads it as float32. `fingerprint` (16 hex digits) changes when either file does.
    """

    image: RelativePath
    annotation: RelativePath | None
    source_id: int = Field(ge=1, lt=2**24)
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class ShardTask(Frozen):
    """One line of a plan and one message on the queue: the pairs of one shard, `index` of `count` in its split."""

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    incarnation: Incarnation = ""
    split: Split
    index: int = Field(ge=0, lt=100_000)
    count: int = Field(ge=1, le=100_000)
    pairs: tuple[PathPair, ...] = Field(max_length=4096)

    @model_validator(mode="after")
    def _index_below_count(self) -> Self:
        if self.index >= self.count:
            raise ValueError(f"shard index {self.index} is not below the count {self.count}")
        return self

    @property
    def shard(self) -> str:
        """The shard's name, e.g. `train-00003-of-00012`: file stem, ledger field and log field."""
        return shard_name(self.split, self.index, self.count)


def shard_name(split: str, index: int, count: int) -> str:
    """`train-00003-of-00012`, as TensorFlow's sharded file names go."""
    return f"{split}-{index:05d}-of-{count:05d}"


SHARD_NAME: Final = re.compile(r"(train|val|test)-(\d{5})-of-(\d{5})")


class SplitPlan(Frozen):
    """How one split was cut: its number of pairs, and the digest of each shard's plan line, by index."""

    pairs: int = Field(ge=0)
    digests: tuple[str, ...]


class Job(Frozen):
    """`job.json`: what was asked and accepted. Written after the plan; from then on the job exists.

    `archive` is the zip or tar that the data set was unpacked from, if any. `folder` is the data set below the data
    root ("." for the root itself). `counts` are what scan and lint saw. `made_by` is the program's name and version,
    for people. `shard_format` is that of the program that accepted the job: jobs share shards only if it is equal.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    incarnation: Incarnation = ""
    dataset: Annotated[str, AfterValidator(_utf8)]
    archive: Annotated[str, AfterValidator(_utf8), Field(exclude_if=operator.not_)] = ""
    folder: Literal["."] | RelativePath
    spec: JobSpec
    run: RunSpec | None
    # Not normalised: older versions did not compose accents, and their models and manifests have the same names.
    labels: tuple[Annotated[str, AfterValidator(one_line)], ...]
    splits: dict[Split, SplitPlan]
    counts: dict[str, int] = Field(default_factory=dict)
    request_digest: str
    made_by: str = ""
    shard_format: ShardFormat = 0

    @model_validator(mode="after")
    def _run_is_its_own(self) -> Self:
        if self.run is not None and (self.run.job, self.run.incarnation) != (self.job, self.incarnation):
            raise ValueError(f"its run belongs to job {self.run.job!r} or to another of this name")
        return self

    @property
    def shards(self) -> list[str]:
        """The names of all shards in the order of the plan: by split in the order of `SPLITS`, then by index."""
        counts = {split: len(self.splits[split].digests) for split in SPLITS if split in self.splits}
        return [shard_name(split, index, count) for split, count in counts.items() for index in range(count)]

    def task_digest(self, shard: str) -> str:
        """The digest that the plan line of `shard` must have.

        Raises:
            KeyError: The job has no such shard.
        """
        split, index, _ = self.place(shard)
        return self.splits[split].digests[index]

    def ordinal(self, shard: str) -> int:
        """The place of `shard` in `shards`, from 0.

        Raises:
            KeyError: The job has no such shard.
        """
        split, index, _ = self.place(shard)
        before = SPLITS[: SPLITS.index(split)]
        return sum(len(self.splits[name].digests) for name in before if name in self.splits) + index

    def has(self, shard: str) -> bool:
        """Whether `shard`, which may be any text, is one of this job's."""
        try:
            self.place(shard)
        except KeyError:
            return False
        return True

    def place(self, shard: str) -> tuple[Split, int, int]:
        """The split of `shard`, its index there, and the split's number of shards.

        Raises:
            KeyError: The job has no such shard.
        """
        match = SHARD_NAME.fullmatch(shard)
        if match is None:
            raise KeyError(shard)
        split: Split = match[1]  # type: ignore[assignment]  # the pattern admits only split names
        index = int(match[2])
        count = len(self.splits[split].digests) if split in self.splits else 0
        if index >= count or shard != shard_name(split, index, count):
            raise KeyError(shard)
        return split, index, count
