"""Figures of a run -> at most five pieces of advice, each a fact and what to do about it. Nothing is measured here.

The report opens with them, and `run.json` keeps them for the command line. Commands are on their own lines, with
`STORE` for the store, because the pages may be read anywhere. Points are of mAP50.
"""

import difflib
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np

from shared.command import PROGRAM
from shared.jobs.job import Split
from shared.jobs.manifest import Manifest
from shared.jobs.paths import name_of_weights
from shared.specs.options import words
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.text import counted
from trainer.evaluation.curves import found_at
from trainer.evaluation.forms import JudgingSplits
from trainer.reporting.figures import Figures
from trainer.reporting.history import ended_early
from trainer.reporting.templates import measured_on

MOST_LINES: Final = 5

# With a lower mAP50 the model found next to nothing, and the advice is to check the boxes and train longer.
_LEARNT_NOTHING: Final = 0.1
# A rise by this much from the fourth to the last fifth of the epochs is more than the falling learning rate explains; a
# fall by _FALL from the best validation to the last counts as overfitting.
_RISE: Final = 0.02
_FALL: Final = 0.03
_LAST_SHARE, _FOURTH_SHARE = 0.8, 0.6
# A curve on fewer validation objects says nothing; on more, chance moves it by about two objects between validations.
_LEAST_CURVE_OBJECTS: Final = 20
_CHANCE_OBJECTS: Final = 2
# With fewer validation objects the best validation may be best by luck.
_FEW_VALIDATED: Final = 100
_LEAST_VALIDATIONS: Final = 5
# If the steps alone took this share of the time bound, the bound is what ended the training.
_BOUND_USED: Final = 0.5
# Fewer epochs than this are not worth advising, however short the training was.
_WORTH_EPOCHS: Final = 20
# A class with fewer training objects is hardly learned.
_FEW_OBJECTS: Final = 10
_ALIKE: Final = 0.75
_CONFUSED_SHARE: Final = 0.25
_UNSURE: Final = 0.04
_SMALL_PX: Final = 16
_CLEAR_SCORE: Final = 0.7
_INT8_LOSS: Final = 0.01
# The threshold that most programs use.
_USUAL_SCORE: Final = 0.5
_LOST_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceFacts:
    """What the rules look at: `metrics` as in `metrics.json`, `figures` for int8 on the measured split.

    `splits` are the judging splits, if known; `exported` is from `exported_epoch`; `split_rule` says what assigned the
    photos to the splits: `seeded`, `lists` or `folders`, or "" if that is not known. `learned` are the job's photos
    that the run it continues was trained on.
    """

    spec: RunSpec
    manifest: Manifest
    metrics: Mapping[str, Mapping[str, Any]]
    figures: Figures
    splits: JudgingSplits | None = None
    exported: str = ""
    split_rule: str = ""
    learned: Collection[str] = ()

    @property
    def val_objects(self) -> int | None:
        """The number of objects in the validation split; None if the gate did not use it, or they were not counted."""
        row = self.metrics["int8"]["gate"]
        return row.get("objects") if row.get("split") == "val" else None

    @property
    def split(self) -> str:
        """The split that was measured on."""
        return self.figures.inputs.split

    @property
    def learnt_from(self) -> dict[str, int]:
        """The number of training objects by class."""
        counts = self.manifest.class_counts.get("train", {})
        return {label: counts.get(label, 0) for label in self.manifest.labels}


def advise(facts: AdviceFacts) -> list[str]:
    """One to five pieces of advice, the most urgent first; commands are on their own lines below the text."""
    said = list(islice((line for rule in _RULES for line in rule(facts)), MOST_LINES))
    return said or [
        "Nothing stands out. Try the model on photos that it has not seen:\n"
        f"{PROGRAM} predict STORE/runs/{facts.spec.run}/{facts.spec.int8_file} PHOTOS --out seen"
    ]


def _shards_given_up(facts: AdviceFacts) -> Iterator[str]:
    failed = len(facts.manifest.failed)
    if failed:
        yield (
            f"{counted(failed, 'shard was', 'shards were')} given up, and their photos are not in this model; "
            f"to make them again:\n{PROGRAM} retry {facts.spec.job} --store STORE"
        )


def _measured_on_training(facts: AdviceFacts) -> Iterator[str]:
    if facts.split == "train":
        yield (
            "Measured on the very photos it was trained on, which promises nothing for others: submit them under "
            f"another name, with some held back for testing: {_put_into(facts, 'test', '60/20/20')}"
        )


def _learned_before(facts: AdviceFacts) -> Iterator[str]:
    if facts.spec.start is None or not facts.learned or facts.split == "train":
        return
    measured = [image["file_name"] for image in facts.figures.inputs.truth["images"]]
    if known := sum(name in facts.learned for name in measured):
        yield (
            f"{name_of_weights(facts.spec.start)}, which this run goes on from, has learned from {known} of "
            f"{counted(len(measured), f'{facts.split} photo')}: the figures are too good. Deal the photos as that run "
            "did (the same lists, or --split and --seed), or measure on others"
        )


def _learnt_nothing(facts: AdviceFacts) -> Iterator[str]:
    row = facts.metrics["int8"]
    map50 = row["map50"]
    if map50 < _LEARNT_NOTHING and row.get("objects") != 0:  # without objects nothing was measured
        yield (
            f"It finds next to nothing (mAP50 {100 * map50:.1f} %): see whether the boxes are where they belong, "
            f"then train longer:\n{PROGRAM} inspect {facts.spec.job} --store STORE --png boxes.png\n{_longer(facts)}"
        )


def _silent(facts: AdviceFacts) -> Iterator[str]:
    """A split that was replaced by another one because none of its objects counts."""
    splits = facts.splits
    if splits is None:
        return
    instead: dict[Split, str] = {
        "val": f"no epoch was chosen by it, the gate judged by {splits.gate}, the threshold is of {splits.score}",
        "test": f"the figures are of {splits.measured}",
    }
    for split, done in instead.items():
        if split in splits.silent and split not in (splits.gate, splits.measured):
            yield (
                f"No {split} photo has an object that counts (difficult ones do not), so {done}: put photos with "
                f"objects there: {_put_into(facts, split, '60/20/20')}"
            )


def _still_rose(facts: AdviceFacts) -> Iterator[str]:
    if len(_first_lap(facts)) < len(facts.figures.inputs.history):
        return  # photos so few that they are trained in branches are learned by heart in longer trainings (0105, 0106)
    rows = _validations(facts)
    last, until = (share * rows[-1][0] if rows else 0.0 for share in (_LAST_SHARE, _FOURTH_SHARE))
    early, late = [figure for epoch, figure in rows if epoch <= last], [row[1] for row in rows if row[0] > last]
    fourth = [figure for epoch, figure in rows if until < epoch <= last]
    if not fourth or facts.metrics["int8"]["map50"] < _LEARNT_NOTHING or max(late) <= max(early):
        return
    before, after = float(np.mean(fourth)), float(np.mean(late))
    if after - before >= max(_RISE, _by_chance(facts)):
        yield (
            f"val mAP still rose at the end: {100 * before:.1f} % in the fourth fifth of the epochs, "
            f"{100 * after:.1f} % in the last: train longer:\n{_longer(facts)}"
        )


def _fell_again(facts: AdviceFacts) -> Iterator[str]:
    rows = _validations(facts)
    if len(rows) < _LEAST_VALIDATIONS:
        return
    epoch, best = max(rows, key=lambda row: row[1])
    last_epoch, last = rows[-1]
    if epoch < 0.6 * last_epoch and best - last >= max(_FALL, _by_chance(facts)):
        yield (
            f"val mAP fell from {100 * best:.1f} % in epoch {epoch:.0f} to {100 * last:.1f} % at the end: it "
            "learns the training photos by heart. Add photos, or change them more (--zoom 0.5, --rotate 10)"
        )


def _confused(facts: AdviceFacts) -> Iterator[str]:
    for true, seen, count, of in islice(facts.figures.confusions(), 2):
        if count >= 2 and count >= _CONFUSED_SHARE * of:
            yield (
                f"{true} is taken for {seen} in {count} of {of}: look whether they are labelled alike, add photos of "
                f"both, or make them one class (submit again with --rename {_quoted(f'{true}={seen}')})"
            )


def _few_objects(facts: AdviceFacts) -> Iterator[str]:
    counts = facts.learnt_from
    few = sorted((label for label in counts if counts[label] < _FEW_OBJECTS), key=counts.__getitem__)
    for label in few[:2]:
        others = [name for name in counts if counts[name] > counts[label]]
        like = difflib.get_close_matches(label, others, n=1, cutoff=_ALIKE)
        if like:
            renamed = f"submit again with --rename {_quoted(f'{label}={like[0]}')}"
            remedy = f"if {like[0]} is meant, {renamed}; if not, annotate more of it"
        else:
            remedy = f"annotate some {2 * _FEW_OBJECTS} more"
            if len(counts) > 1:
                remedy += f", or leave it out (submit again with {_ignoring(label)})"
        left_out = len(few) - 2 if label in few[1:2] else 0
        more = (
            f" (and {counted(left_out, 'more class', 'more classes')} fewer than {_FEW_OBJECTS})"
            if left_out > 0
            else ""
        )
        yield f"{label} has {counted(counts[label], 'object')} to learn from{more}: {remedy}"


def _ignoring(label: str) -> str:
    """The options that leave a class out; a name with a comma, which separates names, is renamed first."""
    if "," not in label:
        return f"--ignore-classes {_quoted(label)}"
    return f"--rename {_quoted(f'{label}=left out')} --ignore-classes 'left out'"


def _quoted(text: str) -> str:
    return shlex.quote(text) if "'" in text else f"'{text}'"


def _small_objects(facts: AdviceFacts) -> Iterator[str]:
    judged = facts.figures.judged.values()
    missed, found = ([side for one in judged for side in getattr(one, sides)] for sides in ("missed_px", "found_px"))
    small, large = (
        [sum((side < _SMALL_PX) == is_small for side in sides) for sides in (missed, found)]
        for is_small in (True, False)
    )
    if sum(small) < 5 or small[0] < 0.5 * sum(small) or small[0] * sum(large) < 2 * large[0] * sum(small):
        return
    size = 32 * math.ceil(1.5 * facts.manifest.image_size / 32)
    others = f", {large[0]} of {sum(large)} larger ones" if sum(large) else ""
    yield (
        f"{small[0]} of {sum(small)} objects below {_SMALL_PX} px are missed{others}: submit again with larger "
        f"pictures (--image-size {size})"
    )


def _clearly_made_up(facts: AdviceFacts) -> Iterator[str]:
    judged = facts.figures.judged
    clear = {at: sum(score >= _CLEAR_SCORE for score in one.made_up_scores) for at, one in judged.items()}
    total, objects = sum(clear.values()), sum(one.objects for one in judged.values())
    if total >= 3 and total >= 0.02 * objects:
        worst = max(clear, key=clear.__getitem__)
        yield (
            f"{counted(total, 'object')} without an annotation {'is' if total == 1 else 'are'} seen with a score of at "
            f"least {_CLEAR_SCORE}, {clear[worst]} of them in {facts.figures.names[worst]}: look whether annotations "
            "are missing there"
        )


def _int8_loses(facts: AdviceFacts) -> Iterator[str]:
    exact, rounded = facts.metrics["float32"]["gate"], facts.metrics["int8"]["gate"]
    low, high = rounded.get("drop_interval", (0.0, 0.0))
    if exact["map50"] - rounded["map50"] < _INT8_LOSS or low <= 0:
        return
    fine_tune = facts.spec.backbone == "conv" and facts.spec.quantize == "ptq"
    tuned = f"\n{PROGRAM} export {facts.spec.run} --store STORE --quantize qat"
    remedy = tuned if fine_tune else " use model_float16.tflite"
    drop = 100 * (exact["map50"] - rounded["map50"])
    yield f"int8 loses {drop:.1f} points ({low:.1f} to {high:.1f}) against float32:{remedy}"


def _unsure(facts: AdviceFacts) -> Iterator[str]:
    row = facts.metrics["int8"]
    interval = row.get("map50_interval")
    if not interval or row.get("objects") == 0 or facts.split == "train":  # more training photos would not help
        return
    low, high = (100 * each for each in interval)
    if max(100 * row["map50"] - low, high - 100 * row["map50"]) >= 100 * _UNSURE:
        yield (
            f"{measured_on(row, facts.split + ' photo')}: mAP50 may lie anywhere from {low:.0f} to "
            f"{high:.0f} %. {PROGRAM} compare tells two runs apart more finely, because it uses the same photos for "
            f"both. To know the figure better, measure on more {'scenes' if 'scenes' in row else 'photos'}: "
            f"{_put_into(facts, facts.split, '60/15/25')}"
        )


def _chosen_by_few(facts: AdviceFacts) -> Iterator[str]:
    objects = facts.val_objects
    if facts.exported and objects is not None and objects < _FEW_VALIDATED:
        yield (
            f"{facts.exported[:1].upper()}{facts.exported[1:]}, so few that luck has a say: validate on more photos: "
            f"{_put_into(facts, 'val', '60/20/20')}"
        )


def _never_measured(facts: AdviceFacts) -> Iterator[str]:
    rows = facts.metrics["int8"]["per_class"]
    unmeasured = {at: name for at, name in enumerate(facts.manifest.labels, start=1) if rows[name]["ap50"] is None}
    there = {row["category_id"] for row in facts.figures.inputs.truth["annotations"]}
    absent = [name for at, name in unmeasured.items() if at not in there]
    difficult = [name for at, name in unmeasured.items() if at in there]
    if absent and facts.split != "train":
        yield (
            f"No {facts.split} photo has {' or '.join(absent[:3])}: how well it is found is unknown. Put some photos "
            "of it there" + (", or deal them anew (another --seed)" if facts.split_rule in ("", "seeded") else "")
        )
    if difficult:
        yield (
            f"All objects of {' and '.join(difficult[:3])} in {facts.split} are marked difficult and count in no "
            "figure: how well it is found is unknown. Where they are not, change <difficult> to 0 and submit again"
        )


def _threshold(facts: AdviceFacts) -> Iterator[str]:
    score, objects = facts.figures.inputs.score, sum(one.objects for one in facts.figures.judged.values())
    if score >= _USUAL_SCORE:
        return
    by_class: list[int] = facts.figures.counts[:-1].sum(axis=1).tolist()
    best, usual = (found_at(facts.figures.curves, by_class, least) for least in (score, _USUAL_SCORE))
    if best - usual >= max(2, _LOST_SHARE * objects):
        yield (
            f"The best threshold is {score:.2f}: at the usual {_USUAL_SCORE} it would find {usual} of {objects} "
            f"objects instead of {best}. Use it in your program, as predict does (--threshold {score:.2f})"
        )


# Ordered by how much it costs a person not to know.
_RULES: Final[tuple[Callable[[AdviceFacts], Iterator[str]], ...]] = (
    _shards_given_up,
    _measured_on_training,
    _learned_before,
    _learnt_nothing,
    _silent,
    _unsure,
    _still_rose,
    _confused,
    _few_objects,
    _int8_loses,
    _fell_again,
    _clearly_made_up,
    _small_objects,
    _chosen_by_few,
    _threshold,
    _never_measured,
)


def _validations(facts: AdviceFacts) -> list[tuple[float, float]]:
    """The epoch and val mAP, which decides what is exported, of each validation; none if they are all chance."""
    if (facts.val_objects or 0) < _LEAST_CURVE_OBJECTS:
        return []
    history = _first_lap(facts)
    return [(row["epoch"] or 0.0, figure) for row in history if (figure := row.get("val_map")) is not None]


def _first_lap(facts: AdviceFacts) -> list[Mapping[str, float | None]]:
    """The epochs up to the end of the first branch; the other branches start again."""
    return [row for row in facts.figures.inputs.history if (row.get("branch") or 0) < 2]


def _by_chance(facts: AdviceFacts) -> float:
    """How much a validation differs from the next by chance."""
    return _CHANCE_OBJECTS / (facts.val_objects or 1)


def _put_into(facts: AdviceFacts, split: str, shares: str) -> str:
    """What a person can do to get more photos into a split, which depends on what assigns them."""
    match facts.split_rule:
        case "lists":
            return f"name them in ImageSets/Main/{split}.txt"
        case "folders":
            return f"move them into the folder {split}"
        case "seeded":
            return f"submit the folder again with --split {shares}"
    return f"submit the folder again with --split {shares}, where it has no lists"


def _longer(facts: AdviceFacts) -> str:
    """The command that trains longer on the same shards, with the option that fits what ended this training."""
    spec, history = facts.spec, facts.figures.inputs.history
    minutes = sum(row.get("seconds") or 0.0 for row in history) / 60
    changes: dict[str, float | None] = {}
    if ended_early(spec, history):  # a longer training would end there too
        changes, longer = {"stop_at_map": None, "patience": None}, "whole"
    elif spec.epochs is None and spec.max_minutes is not None and minutes >= _BOUND_USED * spec.max_minutes:
        changes, longer = {"max_minutes": 2 * spec.max_minutes}, f"{math.ceil(2 * spec.max_minutes)}min"
    else:
        epochs = max(2 * round(_first_lap(facts)[-1]["epoch"] or 1), _WORTH_EPOCHS) if history else 200
        changes, longer = {"epochs": epochs}, f"{epochs}epochs"
        if spec.max_minutes is not None and 2 * minutes > _BOUND_USED * spec.max_minutes:
            changes["max_minutes"], longer = math.ceil(4 * minutes), f"{math.ceil(4 * minutes)}min"
    asked = words(spec.with_files_in("STORE").model_copy(update=changes), TrainingOptions)
    name = f"{spec.job[:50]}-{longer}"
    return shlex.join([PROGRAM, "submit", "--job", spec.job, "--run", name, "--store", "STORE", "--local", *asked])
