"""What is asked and what travels on the queue: `PathPair`, `ShardTask`, `JobSpec`, `RunSpec`, `Job`.

Pydantic models at the door: frozen, unknown fields refused. Written to storage and sent as JSON in one canonical
form (sorted keys, no white space), so that a digest of the text is a digest of the meaning.
"""

import hashlib
import json
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

# Of every file and message of this project; raised when an older program could misread a newer file.
SCHEMA_VERSION: Final = 1

Split = Literal["train", "val", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")

# A job's and a run's name is a folder name on every file system and object store, and part of a Redis key.
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


def _relative(path: str) -> str:
    """Refuse what could leave the data root: absolute, empty, `..`, a NUL. A back slash is a letter like others."""
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "" in parts or "." in parts or "\0" in path:
        raise ValueError(f"not a plain relative path: {path!r}")
    return path


RelativePath = Annotated[str, StringConstraints(max_length=4096), AfterValidator(_relative)]


class Frozen(BaseModel):
    """A value at a door: immutable, strict about its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> str:
        """The canonical JSON text: sorted keys, no white space, UTF-8 as it is."""
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        """Hex SHA-256 of `to_json()` in UTF-8."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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


class JobSpec(Frozen):
    """What a job asks of the workers. Every field changes the bytes of the shards, or which shards there are.

    `image_size` is the side of the stored square picture in pixels; see VOC reading rules for the choices.
    """

    image_size: int = Field(default=320, ge=32, le=4096, multiple_of=32)
    resize: Literal["stretch", "letterbox"] = "stretch"
    split: tuple[int, int, int] = (80, 10, 10)
    seed: int = Field(default=0, ge=0, lt=2**31)
    shard_images: int = Field(default=256, ge=1, le=4096)
    classes: tuple[str, ...] | None = None
    ignore_classes: tuple[str, ...] = ()
    rename: dict[str, str] = Field(default_factory=dict)
    unknown: Literal["error", "skip"] = "error"
    difficult: Literal["keep", "ignore", "drop"] = "keep"
    voc_coords: Literal["corner", "voc1"] = "corner"
    exif: Literal["upright", "raw"] = "upright"
    background: Literal["none", "orphans"] = "none"
    jpeg_quality: int = Field(default=95, ge=50, le=100)
    max_pixels: int = Field(default=200_000_000, ge=1)
    dry: bool = False

    @model_validator(mode="after")
    def _split_sums_to_100(self) -> Self:
        if sum(self.split) != 100 or min(self.split) < 0 or self.split[0] == 0:
            raise ValueError(f"split {self.split} must be three shares that sum to 100, with some for train")
        return self


class Augmentation(Frozen):
    """How strongly training pictures are changed; the defaults are the measured ones (DECISIONS: D-recipe).

    Probabilities in [0, 1]; `zoom`, `aspect`, `contrast`, `saturation` are the largest factor up or down, minus 1;
    `translate` a share of the side; `rotate_deg` and `hue_deg` degrees either way; `brightness` a share of white.
    `mosaic` is the share of pictures put together from four, `mosaic_until` the share of the steps that have such.
    """

    flip_horizontal: float = Field(default=0.5, ge=0, le=1)
    flip_vertical: float = Field(default=0.0, ge=0, le=1)
    quarter_turn: float = Field(default=0.0, ge=0, le=1)
    rotate_deg: float = Field(default=0.0, ge=0, le=180)
    zoom: float = Field(default=0.25, ge=0, le=4)
    aspect: float = Field(default=0.15, ge=0, le=4)
    translate: float = Field(default=0.1, ge=0, le=1)
    mosaic: float = Field(default=0.5, ge=0, le=1)
    mosaic_until: float = Field(default=0.75, ge=0, le=1)
    brightness: float = Field(default=0.15, ge=0, le=1)
    contrast: float = Field(default=0.3, ge=0, le=4)
    saturation: float = Field(default=0.4, ge=0, le=4)
    hue_deg: float = Field(default=6.0, ge=0, le=180)


class RunSpec(Frozen):
    """What a training run asks of the trainer; saved as `runs/<run>/request.json` before the trainer is hinted.

    `epochs` None lets the trainer choose by the size of the set; `max_minutes` bounds the training loop.
    `batch` is per replica. `final` trains on train + val (no selection by val). `max_drop` is in points of mAP50.
    `weights` of a published backbone: none, imagenet, or a file. `stop_at_map` (mAP over IoU 0.5 to 0.95) and
    `patience` (epochs without a better one) end training early by the validation split.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name
    job: Name
    kind: Literal["train", "export"] = "train"
    model: Literal["nano", "small", "medium"] = "small"
    backbone: Literal["conv", "mobilenet_v2", "mobilenet_v3_small"] = "conv"
    weights: str = "none"
    epochs: int | None = Field(default=None, ge=1, le=100_000)
    max_minutes: float | None = Field(default=None, gt=0)
    batch: int = Field(default=8, ge=1, le=1024)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    quantize: Literal["ptq", "qat"] = "ptq"
    seed: int = Field(default=0, ge=0, lt=2**31)
    final: bool = False
    stop_at_map: float | None = Field(default=None, gt=0, le=1)
    patience: int | None = Field(default=None, ge=1)
    max_drop: float = Field(default=1.0, ge=0, le=100)
    augmentation: Augmentation = Augmentation()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.weights != "none" and self.backbone == "conv":
            raise ValueError(f"--weights {self.weights} needs a published --backbone: mobilenet_v2, mobilenet_v3_small")
        if self.quantize == "qat" and self.backbone != "conv":
            raise ValueError("--quantize qat is for --backbone conv; a published backbone is quantized by ptq")
        if self.final and (self.stop_at_map is not None or self.patience is not None):
            raise ValueError(
                "--final trains on the validation split too: nothing is left for --stop-at-map, --patience"
            )
        return self


class SplitPlan(Frozen):
    """How one split was cut: its number of pairs, and the digest of each shard's plan line, by index."""

    pairs: int = Field(ge=0)
    digests: tuple[str, ...]


class Job(Frozen):
    """`job.json`: what was asked and accepted. Written after `plan.jsonl`; from then on the job exists.

    `folder` is the data set below the data root ("." for the root itself). `counts` are what scan and lint saw.
    `made_by` is the program's name and version: only shards of the same one are lent to another job.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    job: Name
    dataset: str
    folder: Literal["."] | RelativePath
    spec: JobSpec
    run: RunSpec | None
    labels: tuple[str, ...]
    splits: dict[Split, SplitPlan]
    counts: dict[str, int] = Field(default_factory=dict)
    request_digest: str
    made_by: str = ""

    @property
    def shards(self) -> list[str]:
        """The names of all shards in the order of the plan: splits in their order, then index."""
        return [
            shard_name(split, index, len(self.splits[split].digests))
            for split in SPLITS
            if split in self.splits
            for index in range(len(self.splits[split].digests))
        ]

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

    def place(self, shard: str) -> tuple[Split, int, int]:
        """Split of `shard`, its index there, and the split's number of shards.

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


def stem(path: str) -> str:
    """The file name of `path` without its last extension."""
    return PurePosixPath(path).stem
