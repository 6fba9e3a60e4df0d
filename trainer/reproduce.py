"""What a job and its run asked for → the commands that do it again, option by option."""

import shlex
from collections.abc import Iterator
from typing import Any, Final

from shared.job import Augmentation, Job, JobSpec, RunSpec

# Shown even where they are the defaults: another version may have others.
_ALWAYS: Final = ("image_size", "resize", "seed", "model", "max_minutes")
_JOB_OPTIONS: Final = (
    *("image_size", "resize", "split", "seed", "shard_images", "classes", "ignore_classes", "rename", "unknown"),
    *("difficult", "voc_coords", "exif", "background"),
)
_RUN_OPTIONS: Final = (
    *("model", "backbone", "weights", "epochs", "max_minutes", "batch", "learning_rate", "precision", "final"),
    *("stop_at_map", "patience", "quantize", "max_drop"),
)
# Of `Augmentation`: a field → the option of its strength; the others are switches.
_STRENGTHS: Final = {"rotate_deg": "rotate", "zoom": "zoom", "translate": "translate", "mosaic": "mosaic"}


def reproduce_commands(spec: RunSpec, job: Job | None) -> list[str]:
    """The commands that lead from the folder to the same model; `STORE` is where it was or shall be."""
    submit = [submit_command(spec, job)] if job is not None else []
    return [
        *submit,
        f"python -m trainer export {spec.run} --store STORE",
        f"python -m trainer evaluate {spec.run} --store STORE",
        f"python -m trainer predict STORE/runs/{spec.run}/model_int8.tflite PICTURES --out seen",
    ]


def submit_command(spec: RunSpec, job: Job) -> str:
    """The `producer submit` that asks for the same shards and the same run."""
    words = ["producer", "submit", job.dataset, "--job", job.job, "--store", "STORE", "--local", "--wait"]
    words += _options(job.spec, JobSpec(), _JOB_OPTIONS)
    words += _options(spec, RunSpec(run=spec.run, job=spec.job), _RUN_OPTIONS)
    words += _changes(spec.augmentation)
    return shlex.join(words)


def _options(asked: JobSpec | RunSpec, usual: JobSpec | RunSpec, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = getattr(asked, name)
        if value != getattr(usual, name) or name in _ALWAYS:
            yield from _option(f"--{name.replace('_', '-')}", value)


def _option(flag: str, value: Any) -> list[str]:
    match value:
        case True:
            return [flag]
        case None:
            # No bound is an option's 0; what else may be None is None by default.
            return [flag, "0"]
        case dict():
            return [word for old, new in value.items() for word in (flag, f"{old}={new}")]
        case (int(), int(), int()):
            return [flag, "/".join(map(str, value))]
        case tuple():
            return [flag, ",".join(value)]
        case _:
            return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def _changes(asked: Augmentation) -> Iterator[str]:
    usual = Augmentation()
    switches = {
        "--no-flips": asked.flip_horizontal == 0,
        "--vertical-flips": asked.flip_vertical > 0,
        "--quarter-turns": asked.quarter_turn > 0,
        "--no-colours": asked.hue_deg == asked.saturation == 0,
    }
    yield from (flag for flag, is_on in switches.items() if is_on)
    for name, option in _STRENGTHS.items():
        if getattr(asked, name) != getattr(usual, name):
            yield from (f"--{option}", f"{getattr(asked, name):g}")
