"""What is asked of the workers and of the trainer: `JobSpec`, `RunSpec`, and the options that a person types for them.

A field that carries an `Option` is one of the command line (`shared.jobs.options`).
"""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import AfterValidator, Field, ValidationError, model_validator

from shared.errors import OptionError
from shared.jobs.frozen import SCHEMA_VERSION, ClassName, Frozen, Incarnation, Name
from shared.jobs.options import NamesText, Option, RenamesText, SharesText, ZeroIsNone, words

Seed = Annotated[int, Option("Seed of the split and of training.", "Splits"), Field(ge=0, lt=2**31)]
_SHARE: Final = Field(ge=0, le=1)

QAT_REFUSED: Final = (
    "--quantize qat is for --backbone conv: learning with int8's rounding is not built for the depthwise convolutions "
    "of a published backbone; leave --quantize qat out, ptq quantizes them"
)


def _change(text: str, flags: str = "", *, is_switch: bool = False) -> Option:
    return Option(text, "Changes to training pictures", flags, is_switch=is_switch)


def _shares_of_all(split: tuple[int, int, int]) -> tuple[int, int, int]:
    if sum(split) != 100 or min(split) < 0 or split[0] == 0:
        raise ValueError("expected three shares that sum to 100, with some for train")
    return split


ClassNames = Annotated[tuple[ClassName, ...], NamesText]


def _some_or_all(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if names == ():
        raise ValueError("expected class names, comma separated, such as cat,dog")
    return names


class DataOptions(Frozen):
    """What a person may ask of the data: what `lint` and `submit` read it by. docs/reading-rules.md says more.

    `image_size` is the side of the stored square picture in pixels, `split` the shares of train, val and test.
    """

    image_size: Annotated[
        int,
        Option("Side of the model's input in pixels, a multiple of 32.", "Data", is_common=True),
        Field(ge=32, le=4096, multiple_of=32),
    ] = 320
    split: Annotated[
        tuple[int, int, int],
        Option("Shares of train/val/test where the folder has no lists.", "Splits"),
        SharesText,
        AfterValidator(_shares_of_all),
    ] = (80, 10, 10)
    classes: Annotated[
        ClassNames | None,
        Option("Only these classes, comma separated.", "Data", is_common=True),
        AfterValidator(_some_or_all),
    ] = None
    resize: Annotated[Literal["stretch", "letterbox"], Option("stretch (as MediaPipe does) or letterbox.", "Data")] = (
        "stretch"
    )
    ignore_classes: Annotated[ClassNames, Option("Leave these classes out, comma separated.", "Data")] = ()
    rename: Annotated[
        dict[ClassName, ClassName], Option("old=new; may be given several times.", "Data"), RenamesText
    ] = Field(default_factory=dict)
    unknown: Annotated[Literal["error", "skip"], Option("A class outside --classes: error or skip.", "Data")] = "error"
    difficult: Annotated[
        Literal["keep", "ignore", "drop"], Option("Objects marked difficult: keep, ignore or drop.", "Data")
    ] = "keep"
    voc_coords: Annotated[
        Literal["corner", "voc1"], Option("corner (LabelImg and most) or voc1 (devkit, 1-based).", "Data")
    ] = "corner"
    exif: Annotated[
        Literal["upright", "raw"], Option("Where EXIF cannot be decided: boxes are upright or raw.", "Data")
    ] = "upright"
    damaged: Annotated[
        Literal["keep", "drop"],
        Option("A picture that ends too early: keep it if 99 % of its rows are there, or drop.", "Data"),
        Field(exclude_if=lambda damaged: damaged == "keep"),  # digests of older versions are without it
    ] = "keep"
    background: Annotated[
        Literal["none", "orphans"], Option("Images without XML: none or orphans (kept as background).", "Data")
    ] = "none"
    seed: Seed = 0


class JobSpec(DataOptions):
    """What a job asks of the workers. Every field changes the bytes of the shards, or which shards there are."""

    shard_images: Annotated[int, Option("At most this many pictures per shard.", "Output"), Field(ge=1, le=4096)] = 256
    jpeg_quality: int = Field(default=95, ge=50, le=100)
    max_pixels: int = Field(default=200_000_000, ge=1)
    dry: bool = False


_COLOURS: Final = _change("Change brightness, contrast, colours.", "--colours/--no-colours", is_switch=True)
_MIRROR: Final = _change("Mirror left and right; not for text.", "--flips/--no-flips", is_switch=True)
_UPSIDE_DOWN: Final = _change("Mirror up and down: where nothing has an up.", "--vertical-flips", is_switch=True)
_TURN: Final = _change("Turn by 90 degrees: where nothing has an up.", "--quarter-turns", is_switch=True)


# Where non-maximum suppression is: inside the exported files, outside, or files of both kinds.
Nms = Literal["inside", "outside", "both"]

# More folds cost more trainings, and each learns from hardly more photos.
MOST_FOLDS: Final = 10


class Augmentation(Frozen):
    """How strongly training pictures are changed; the defaults are the measured ones (docs/decisions/0028).

    Probabilities in [0, 1]; `zoom`, `aspect`, `contrast`, `saturation` are the largest factor up or down, minus 1;
    `translate` a share of the side; `rotate_deg` and `hue_deg` degrees either way; `brightness` a share of white.
    `mosaic` is the share of pictures put together from four, `mosaic_until` the share of the steps that have such.
    `paste` is the share of pictures that get objects of others, None: as the backbone wants it.
    """

    flip_horizontal: Annotated[float, _MIRROR, _SHARE] = 0.5
    flip_vertical: Annotated[float, _UPSIDE_DOWN, _SHARE] = 0.0
    quarter_turn: Annotated[float, _TURN, _SHARE] = 0.0
    rotate_deg: Annotated[float, _change("Turn by up to so many degrees.", "--rotate"), Field(ge=0, le=180)] = 0.0
    zoom: Annotated[float, _change("Enlarge or shrink by up to 1 + this; 0: not."), Field(ge=0, le=4)] = 0.25
    aspect: float = Field(default=0.15, ge=0, le=4)
    translate: Annotated[float, _change("Shift by up to this share of the side."), _SHARE] = 0.1
    mosaic: Annotated[float, _change("Share of pictures put together from four."), _SHARE] = 0.5
    mosaic_until: Annotated[float, _SHARE] = 0.75
    paste: Annotated[
        Annotated[float, _SHARE] | None,
        _change("Share of pictures with objects pasted in; default: half, of a pretrained network with few photos."),
        Field(exclude_if=lambda paste: paste is None),  # digests of older versions are without it
    ] = None
    brightness: Annotated[float, _COLOURS, _SHARE] = 0.15
    contrast: Annotated[float, _COLOURS, Field(ge=0, le=4)] = 0.3
    saturation: Annotated[float, _COLOURS, Field(ge=0, le=4)] = 0.4
    hue_deg: Annotated[float, _COLOURS, Field(ge=0, le=180)] = 6.0


# Their weights come with the trainer; the short one has no last four blocks (docs/decisions/0103).
Lite = Literal["efficientnet_lite0", "efficientnet_lite0_short", "efficientnet_lite2"]
Backbone = Literal["conv", Lite, "mobilenet_v2", "mobilenet_v3_small"]

_BACKBONE: Final = Option(
    "Ours from nothing (conv), or a published one; auto: efficientnet_lite0 for few photos. The short one is for small "
    "pictures (192 or 224 px); lite2 is larger and slower, to try for accuracy.",
    "Training",
)

# With fewer training photos, and fewer objects on them, ImageNet's features are worth more than what they alone can
# teach (docs/decisions/0080).
FEW_PHOTOS: Final = 1_000
FEW_OBJECTS: Final = 2_000

# A run that goes on from a trained network: shares of the steps and of the peak rate that a training from nothing of
# that network takes (docs/decisions/0089).
CONTINUED_STEPS: Final = 1 / 3
CONTINUED_RATE: Final = 3 / 4
# However few the photos are: no training is shorter by default.
FEWEST_STEPS: Final = 400


# Share of pictures with pasted objects where a taught backbone learns from fewer photos than these, by heart (decision
# 0096).
TAUGHT_PASTE: Final = 0.5
FEW_TO_PASTE: Final = 60


# Of a run that is to `distil`: the share of its minutes that it may imitate for; the rest is the training loop's.
DISTIL_SHARE: Final = 0.5


class TrainingOptions(Frozen):
    """What a person may ask of training.

    `epochs` None lets the trainer choose by the size of the set; `max_minutes` bounds the training loop (None: not).
    `batch` is per replica. `final` trains on train + val (no selection by val). `max_drop` is in points of mAP50.
    `weights` of a published backbone: none, imagenet (EfficientNet-Lite always), or the store's key of a file; `freeze`
    None lets the trainer choose. `start` is the store's key of a trained network that the run goes on from.
    `stop_at_map` (mAP over IoU 0.5 to 0.95) and `patience` (epochs without a better one) end training early by the
    validation split.
    """

    model: Annotated[
        Literal["nano", "small", "medium"],
        Option("Size of the detector; the command sizes compares them.", "Training", is_common=True),
    ] = "small"
    max_minutes: Annotated[
        Annotated[float, Field(ge=0)] | None,
        Option("Bound of the training loop; 0: none.", "Training", is_common=True),
        ZeroIsNone,
    ] = 30.0
    epochs: Annotated[
        int | None,
        Option("Default: chosen by the size of the set.", "Training", is_common=True),
        Field(ge=1, le=100_000),
    ] = None
    backbone: Annotated[
        Literal["auto", Backbone],
        _BACKBONE,
    ] = "auto"
    weights: Annotated[
        str,
        Option(
            "Of a published backbone: none, imagenet (MobileNet's are downloaded) or a FILE without top.", "Training"
        ),
    ] = "none"
    start: Annotated[
        str | None,
        Option(
            "Go on from a RUN, its folder or its model.keras: in fewer steps, at a lower rate.", "Training", "--from"
        ),
        Field(exclude_if=lambda start: start is None),  # digests of older versions are without it
    ] = None
    freeze: Annotated[
        float | None,
        Option("Share of steps in which a pretrained or distilled backbone does not learn; default: 0.15.", "Training"),
        Field(ge=0, le=1, exclude_if=lambda freeze: freeze is None),  # digests of older versions are without it
    ] = None
    distil: Annotated[
        bool,
        Option(
            "Of conv: learn from EfficientNet-Lite0 what ImageNet taught it, then train. No slower a model.", "Training"
        ),
        Field(exclude_if=operator.not_),  # digests of older versions are without it
    ] = False
    batch: Annotated[int, Option("Pictures per step and replica.", "Training"), Field(ge=1, le=1024)] = 8
    learning_rate: Annotated[
        float | None, Option("Peak rate; default: by the batch over all replicas.", "Training"), Field(gt=0, le=1)
    ] = None
    precision: Annotated[
        Literal["float32", "mixed_float16", "mixed_bfloat16"],
        Option("Mixed ones gain on GPUs and on CPUs with bfloat16 units.", "Training"),
    ] = "float32"
    seed: Seed = 0
    final: Annotated[bool, Option("Train on train + val.", "Training")] = False
    stop_at_map: Annotated[
        float | None, Option("Stop at this mAP (0.5 to 0.95) on val, in (0, 1].", "Training"), Field(gt=0, le=1)
    ] = None
    patience: Annotated[
        int | None, Option("Stop after so many epochs without a better mAP on val.", "Training"), Field(ge=1)
    ] = None
    augmentation: Augmentation = Augmentation()
    quantize: Annotated[
        Literal["ptq", "qat"], Option("How int8 is made: ptq calibrates, qat fine-tunes for it first.", "Output")
    ] = "ptq"
    max_drop: Annotated[
        float, Option("Points of mAP50 that int8 may lose against float.", "Output"), Field(ge=0, le=100)
    ] = 1.0
    nms: Annotated[
        Nms,
        Option(
            "Suppression inside the files, outside (for GPUs, NPUs and browsers), or files of both kinds.", "Output"
        ),
        Field(exclude_if=lambda nms: nms == "inside"),  # digests of older versions are without it
    ] = "inside"

    @model_validator(mode="before")
    @classmethod
    def _lite_is_pretrained(cls, fields: Any) -> Any:
        """EfficientNet-Lite's weights come with the trainer: nobody has to ask for them; a trained one has its own."""
        is_new = isinstance(fields, dict) and fields.get("start") is None
        if is_new and fields.get("backbone") in get_args(Lite):
            return fields | {"weights": "imagenet" if fields.get("weights", "none") == "none" else fields["weights"]}
        return fields

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.start is not None and self.weights != "none":
            raise ValueError(f"--from {self.start} brings its own weights: leave --weights {self.weights} out")
        if self.weights != "none" and self.backbone in ("auto", "conv"):
            raise ValueError(f"--weights {self.weights} needs a published --backbone, such as efficientnet_lite0")
        if self.backbone in get_args(Lite) and self.weights != "imagenet" and self.start is None:
            raise ValueError(f"--weights {self.weights}: --backbone {self.backbone} brings its own, imagenet's")
        if self.distil and (self.backbone not in ("auto", "conv") or self.start is not None):
            other = f"--from {self.start}" if self.start is not None else f"--backbone {self.backbone}"
            raise ValueError(f"--distil is for a --backbone conv that begins from nothing; leave it or {other} out")
        if self.freeze is not None and self.start is not None:
            raise ValueError(f"--from {self.start}: nothing is frozen again; leave --freeze {self.freeze:g} out")
        if self.freeze is not None and not self.is_taught:
            raise ValueError(
                f"--freeze {self.freeze:g} needs a backbone that has learned: name a pretrained one, or --distil"
            )
        if self.quantize == "qat" and self.backbone not in ("auto", "conv"):
            raise ValueError(QAT_REFUSED)
        if self.nms != "inside" and self.backbone == "mobilenet_v3_small":
            raise ValueError(
                f"--nms {self.nms} is not for --backbone mobilenet_v3_small: no accelerator takes its int8 whole"
            )
        if self.final and (self.stop_at_map, self.patience) != (None, None):
            raise ValueError(
                "--final trains on the validation split too: nothing is left for --stop-at-map, --patience"
            )
        return self

    def effective_augmentation(self, photos: int) -> Augmentation:
        """What is asked for, to learn from so many photos; where no share of pasted objects is asked for, with ours."""
        share = self.augmentation.paste
        is_helped = self.is_taught and self.backbone != "efficientnet_lite0_short"
        wanted = TAUGHT_PASTE if is_helped and photos < FEW_TO_PASTE else 0.0
        return self.augmentation.model_copy(update={"paste": wanted if share is None else share})

    @property
    def loop_minutes(self) -> float | None:
        """Minutes that the training loop may take; None: no bound."""
        if self.max_minutes is None or not self.distil:
            return self.max_minutes
        return (1 - DISTIL_SHARE) * self.max_minutes

    @property
    def is_pretrained(self) -> bool:
        """Whether the backbone is a published one that begins with weights that somebody has trained."""
        return self.weights != "none" or (self.start is not None and self.backbone != "conv")

    @property
    def is_taught(self) -> bool:
        """Whether the backbone begins with what others have learned: their weights, or by `distil` their features."""
        return self.is_pretrained or self.distil

    def with_files_in(self, store: str) -> Self:
        """These options as a person types them: the store's keys of files as paths in the store `store`."""
        keys = {"weights": self.weights, "start": self.start}
        files = {name: f"{store}/{key}" for name, key in keys.items() if key is not None and key.startswith("weights/")}
        return self.model_copy(update=files)

    def photos_learned(self, counts: Mapping[str, int]) -> int:
        """How many photos a run learns from, by the `counts` of its job."""
        return sum(counts.get(split, 0) for split in (("train", "val") if self.final else ("train",)))

    def with_backbone(self, counts: Mapping[str, int], known: "RunSpec | None") -> "TrainingOptions":
        """These options with the backbone that `auto` stands for.

        Args:
            counts: Of the job: photos by split, and `objects_kept`.
            known: The run of this name, if it was asked for before: it keeps its backbone.
        """
        if self.backbone != "auto":
            return self
        fields = self.model_dump() | {"backbone": "efficientnet_lite0" if self._is_for_pretrained(counts) else "conv"}
        if known is not None:
            fields |= {"backbone": known.backbone, "weights": known.weights}
        return TrainingOptions.model_validate(fields)

    def _is_for_pretrained(self, counts: Mapping[str, int]) -> bool:
        if self.model != "small" or self.quantize != "ptq" or self.distil:
            return False  # who asks for another size, for fine-tuning or for a teacher, wants our network
        photos, all_photos = (
            self.photos_learned(counts),
            sum(counts.get(split, 0) for split in ("train", "val", "test")),
        )
        return photos < FEW_PHOTOS and photos * counts.get("objects_kept", 0) < FEW_OBJECTS * all_photos


class FoldOptions(TrainingOptions):
    """What a person may ask of the trainings of an audit: nothing is selected by val there, and nothing exported.

    Nor do they go on from a trained network, which may have learnt the labels that it is to judge.
    """

    start: None = None
    final: bool = False
    stop_at_map: float | None = None
    patience: int | None = None
    quantize: Literal["ptq", "qat"] = "ptq"
    max_drop: float = 1.0
    nms: Annotated[Nms, Field(exclude_if=lambda nms: nms == "inside")] = "inside"


class RunSpec(TrainingOptions):
    """A training run: what is asked, and of which job; saved as `runs/<run>/request.json` before the trainer is hinted.

    `incarnation` is that of the job. `kind` says nothing any more; version 0.1.0 wrote it, and digests are made of it.
    A run with a `fold` (of so many `folds`) of an audit learns from all photos but its part, and detects in that part.
    One that `audits` other runs trains nothing: it holds what they saw against the labels, once they are done.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    run: Name
    job: Name
    incarnation: Incarnation = ""
    kind: Literal["train"] = "train"
    # Decided when it was asked for.
    backbone: Annotated[Backbone, _BACKBONE] = "conv"
    # Digests of ordinary runs are without the three.
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
        """Whether it ends with a model to hand out: neither a fold of an audit nor its analysis does."""
        return not self.fold and not self.audits

    @property
    def int8_file(self) -> str:
        """The int8 model that it hands out; of two, the one with suppression inside."""
        return "model_int8_raw.tflite" if self.nms == "outside" else "model_int8.tflite"

    def trains_as(self, other: "RunSpec") -> bool:
        """Whether both ask for the same training, however its weights are exported and judged."""
        exported = set(ReleaseOptions.model_fields)
        return self.model_dump(exclude=exported) == other.model_dump(exclude=exported)


class ReleaseOptions(Frozen):
    """What a person may change of a run: how its weights are exported and judged; None leaves that as it was."""

    quantize: Annotated[
        Literal["ptq", "qat"] | None,
        Option("How int8 is made from now on: ptq calibrates, qat fine-tunes for it first.", "Output"),
    ] = None
    max_drop: Annotated[
        float | None, Option("Points of mAP50 that int8 may lose from now on.", "Output"), Field(ge=0, le=100)
    ] = None
    nms: Annotated[
        Nms | None, Option("Where suppression is from now on: inside the files, outside, or both kinds.", "Output")
    ] = None

    def applied_to(self, asked: RunSpec) -> RunSpec:
        """What is asked of a run from now on.

        Raises:
            OptionError: It does not fit the rest of what was asked.
        """
        try:
            return RunSpec.model_validate(asked.model_dump() | self.model_dump(exclude_none=True))
        except ValidationError as error:
            raise OptionError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error

    @classmethod
    def between(cls, before: RunSpec, now: RunSpec) -> Self:
        """What leads from what was asked `before` to what is asked `now`, of a run that trains the same."""
        asked = {name: getattr(now, name) for name in cls.model_fields if getattr(now, name) != getattr(before, name)}
        return cls(**asked)

    @property
    def typed(self) -> list[str]:
        """The words of the command line that ask for it; none where all is as it was."""
        return words(self, type(self))
