"""The options of training, and what is chosen if nothing is asked for."""

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from shared.specs.augmentation import Augmentation
from shared.specs.data import Seed
from shared.specs.frozen import Frozen
from shared.specs.options import Option, ZeroIsNone

QAT_REFUSED: Final = (
    "--quantize qat is for --backbone conv: learning with int8's rounding is not built for the depthwise convolutions "
    "of a published backbone; leave --quantize qat out, ptq quantizes them"
)

# Where non-maximum suppression is: inside the exported files, outside, or files of both kinds.
Nms = Literal["inside", "outside", "both"]

# Backbones whose weights come with the trainer; the short one lacks the last four blocks (docs/decisions/0103).
Lite = Literal["efficientnet_lite0", "efficientnet_lite0_short", "efficientnet_lite2"]
Backbone = Literal["conv", Lite, "mobilenet_v2", "mobilenet_v3_small"]

BACKBONE_OPTION: Final = Option(
    "conv is ours and learns from nothing, the others are published networks; auto: efficientnet_lite0 for few photos, "
    "else conv. efficientnet_lite0_short is for small pictures (192 or 224 px); efficientnet_lite2 is larger, slower "
    "and may be more accurate.",
    "Training",
)

# With fewer training photos than this, and fewer objects on them, features from ImageNet are worth more than what the
# photos alone can teach (docs/decisions/0080).
FEW_PHOTOS: Final = 1_000
FEW_OBJECTS: Final = 2_000

# For a run that continues a trained network: its share of the steps and of the peak rate of training that network from
# nothing (docs/decisions/0089).
CONTINUED_STEPS: Final = 1 / 3
CONTINUED_RATE: Final = 3 / 4
# However few photos there are, no training is shorter by default.
FEWEST_STEPS: Final = 400

# The share of pictures with pasted objects if a taught backbone learns from fewer than FEW_TO_PASTE photos, which it
# would otherwise learn by heart (docs/decisions/0096).
TAUGHT_PASTE: Final = 0.5
FEW_TO_PASTE: Final = 60

# The share of the minutes of a run with `distil` that it may spend imitating; the rest is for the training loop.
DISTIL_SHARE: Final = 0.5


class TrainingOptions(Frozen):
    """The options of training.

    `epochs` None lets the trainer choose by the size of the set; `max_minutes` bounds the training loop (None: not).
    `batch` is per replica. `final` trains on train + val (no selection by val). `max_drop` is in points of mAP50.
    `weights` of a published backbone are none, imagenet (always for EfficientNet-Lite), or a file's key in the store;
    `freeze` None lets the trainer choose. `start` is the key in the store of a trained network that the run continues.
    `stop_at_map` (mAP over IoU 0.5 to 0.95) and `patience` (epochs without a better mAP) end training early, judged on
    the validation split.
    """

    model: Annotated[
        Literal["nano", "small", "medium"],
        Option("Size of the detector; `voc2tflite sizes` compares them.", "Training", is_common=True),
    ] = "small"
    max_minutes: Annotated[
        Annotated[float, Field(ge=0)] | None,
        Option("Time limit of the training loop in minutes; 0: no limit.", "Training", is_common=True),
        ZeroIsNone,
    ] = 30.0
    epochs: Annotated[
        int | None,
        Option("Number of epochs; default: chosen by the size of the data set.", "Training", is_common=True),
        Field(ge=1, le=100_000),
    ] = None
    backbone: Annotated[
        Literal["auto", Backbone],
        BACKBONE_OPTION,
    ] = "auto"
    weights: Annotated[
        str,
        Option(
            "Weights of a published backbone: none, imagenet (MobileNet's are downloaded) or a FILE without top.",
            "Training",
        ),
    ] = "none"
    start: Annotated[
        str | None,
        Option(
            "Continue from a trained RUN, its folder or its model.keras: in fewer steps, at a lower rate.",
            "Training",
            "--from",
        ),
        Field(exclude_if=lambda start: start is None),  # older versions' digests do not contain it
    ] = None
    freeze: Annotated[
        float | None,
        Option("Share of the steps in which a pretrained or distilled backbone is frozen; default: 0.15.", "Training"),
        Field(ge=0, le=1, exclude_if=lambda freeze: freeze is None),  # older versions' digests do not contain it
    ] = None
    distil: Annotated[
        bool,
        Option(
            "For conv: first learn from EfficientNet-Lite0 what ImageNet taught it. The model gets no slower.",
            "Training",
        ),
        Field(exclude_if=operator.not_),  # older versions' digests do not contain it
    ] = False
    batch: Annotated[int, Option("Pictures per step and replica.", "Training"), Field(ge=1, le=1024)] = 8
    learning_rate: Annotated[
        float | None,
        Option("Peak learning rate; default: chosen by the batch of all replicas together.", "Training"),
        Field(gt=0, le=1),
    ] = None
    precision: Annotated[
        Literal["float32", "mixed_float16", "mixed_bfloat16"] | None,
        Option(
            "Default: mixed_bfloat16 for conv on CPUs that have units for it (avx512_bf16), else float32.",
            "Training",
        ),
        Field(exclude_if=lambda precision: precision is None),  # older versions' digests contain float32
    ] = None
    seed: Seed = 0
    final: Annotated[bool, Option("Train on train + val.", "Training")] = False
    stop_at_map: Annotated[
        float | None,
        Option("Stop when mAP (IoU 0.5 to 0.95) on val reaches this, in (0, 1].", "Training"),
        Field(gt=0, le=1),
    ] = None
    patience: Annotated[
        int | None, Option("Stop after this many epochs without a better mAP on val.", "Training"), Field(ge=1)
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
            "Where NMS is: inside the files, outside (for GPUs, NPUs and browsers), or files of both kinds.", "Output"
        ),
        Field(exclude_if=lambda nms: nms == "inside"),  # older versions' digests do not contain it
    ] = "inside"

    @model_validator(mode="before")
    @classmethod
    def _lite_is_pretrained(cls, fields: Any) -> Any:
        """EfficientNet-Lite always starts from imagenet, unless it continues a trained network, which has weights."""
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
        """The augmentation for training with this many photos; chooses the share of pasted objects if none is asked."""
        share = self.augmentation.paste
        is_helped = self.is_taught and self.backbone != "efficientnet_lite0_short"
        wanted = TAUGHT_PASTE if is_helped and photos < FEW_TO_PASTE else 0.0
        return self.augmentation.model_copy(update={"paste": wanted if share is None else share})

    @property
    def loop_minutes(self) -> float | None:
        """How many minutes the training loop may take; None: no bound."""
        if self.max_minutes is None or not self.distil:
            return self.max_minutes
        return (1 - DISTIL_SHARE) * self.max_minutes

    @property
    def is_pretrained(self) -> bool:
        """Whether the backbone is a published one that starts with trained weights."""
        return self.weights != "none" or (self.start is not None and self.backbone != "conv")

    @property
    def is_taught(self) -> bool:
        """Whether the backbone starts with what others have learned: their weights or, by `distil`, their features."""
        return self.is_pretrained or self.distil

    def with_files_in(self, store: str) -> Self:
        """These options as a person types them: keys of files become paths in the store `store`."""
        keys = {"weights": self.weights, "start": self.start}
        files = {name: f"{store}/{key}" for name, key in keys.items() if key is not None and key.startswith("weights/")}
        return self.model_copy(update=files)

    def photos_learned(self, counts: Mapping[str, int]) -> int:
        """How many photos a run learns from, given the `counts` of its job."""
        return sum(counts.get(split, 0) for split in (("train", "val") if self.final else ("train",)))

    def with_backbone(self, counts: Mapping[str, int], known: "TrainingOptions | None") -> "TrainingOptions":
        """These options with the backbone that `auto` stands for.

        Args:
            counts: The job's counts: photos by split, and `objects_kept`.
            known: The run of this name, if it was asked for before: it keeps its backbone, and the float32 that earlier
                versions wrote down unasked.
        """
        fields = self.model_dump()
        if self.precision is None and known is not None and known.precision == "float32":
            fields["precision"] = "float32"
        if self.backbone == "auto" and known is not None:
            fields |= {"backbone": known.backbone, "weights": known.weights}
        elif self.backbone == "auto":
            fields["backbone"] = "efficientnet_lite0" if self._is_for_pretrained(counts) else "conv"
        return TrainingOptions.model_validate(fields)

    def _is_for_pretrained(self, counts: Mapping[str, int]) -> bool:
        if self.model != "small" or self.quantize != "ptq" or self.distil:
            return False  # asking for another size, for fine-tuning or for a teacher means asking for our network
        photos, all_photos = (
            self.photos_learned(counts),
            sum(counts.get(split, 0) for split in ("train", "val", "test")),
        )
        return photos < FEW_PHOTOS and photos * counts.get("objects_kept", 0) < FEW_OBJECTS * all_photos
