"""What the report says of a job: lint by kind, and commands that ask for the same again."""

import shlex
from pathlib import Path

import typer

from producer.__main__ import app
from shared.audit.same_name import splits_of
from shared.jobs.identity import find_job
from shared.jobs.job import Job
from shared.jobs.paths import RunPaths
from shared.specs.augmentation import Augmentation
from shared.specs.data import JobSpec
from shared.specs.options import parse_options
from shared.specs.run import RunSpec
from shared.specs.training import TrainingOptions
from shared.storage import Storage
from tests.unit.shared.audit.test_same_name import run_of
from trainer.reporting.job_facts import learned_before, lint_kinds, read_job_facts
from trainer.reporting.report import reproduce_commands, submit_command


def job(spec: JobSpec) -> Job:
    return Job(
        job="mine",
        dataset="/photos/my cells",
        folder=".",
        spec=spec,
        run=None,
        labels=("a",),
        splits={},
        request_digest="0",
    )


def parsed(command: str) -> dict[str, object]:
    """The options that `producer submit` reads out of a command."""
    words = shlex.split(command)
    assert words[:2] == ["voc2tflite", "submit"]
    submit = typer.main.get_command(app).commands["submit"]  # type: ignore[attr-defined]
    return dict(submit.make_context("submit", words[2:]).params)


def test_photos_that_the_run_before_has_learned_are_known_from_its_own_job(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store"))
    old = run_of(tmp_path, "old", storage, [*range(10)])
    storage.write(RunPaths("old").request, old.to_json().encode())
    asked = run_of(tmp_path, "mine", storage, [*range(10)])
    spec = RunSpec.model_validate(dict(asked) | {"start": "weights/0123456789abcdef-old.keras", "backbone": "conv"})
    before = find_job(storage, "old")
    assert before is not None
    learned = {name for name, split in splits_of(storage, before).items() if split == "train"}
    assert learned_before(storage, spec) == learned != set()
    assert learned_before(storage, asked) == set()
    storage.write(RunPaths("old").request, b"{")
    assert learned_before(storage, spec) == set()


def test_defaults_are_asked_for_again_with_what_another_version_may_change() -> None:
    command = submit_command(RunSpec(run="mine", job="mine", max_minutes=30), job(JobSpec()))
    assert command == (
        "voc2tflite submit '/photos/my cells' --job mine --store STORE --local --wait --image-size 320 --resize "
        "stretch --seed 0 --model small --max-minutes 30 --backbone conv"
    )


def test_an_added_run_is_asked_for_by_its_name() -> None:
    added = submit_command(RunSpec(run="wide", job="mine", max_minutes=30), job(JobSpec()))
    assert "--job mine --run wide --store STORE" in added
    assert "--run" not in submit_command(RunSpec(run="mine", job="mine"), job(JobSpec()))


def test_every_choice_is_asked_for_again() -> None:
    spec = JobSpec(
        image_size=416,
        resize="letterbox",
        split=(70, 20, 10),
        seed=7,
        shard_images=64,
        classes=("a", "b c"),
        ignore_classes=("d",),
        rename={"e": "a", "f": "b c"},
        unknown="skip",
        difficult="drop",
        voc_coords="voc1",
        exif="raw",
        background="orphans",
    )
    run = RunSpec(
        run="mine",
        job="mine",
        model="nano",
        epochs=12,
        max_minutes=None,
        batch=4,
        learning_rate=0.001,
        precision="mixed_bfloat16",
        quantize="qat",
        seed=7,
        stop_at_map=0.5,
        patience=9,
        max_drop=2,
        augmentation=Augmentation(flip_horizontal=0, flip_vertical=0.5, quarter_turn=0.5, rotate_deg=5, mosaic=0.25),
    )
    read = parsed(submit_command(run, job(spec)))
    asked = {
        **{"image_size": 416, "resize": "letterbox", "split": "70/20/10", "seed": 7, "shard_images": 64},
        **{"classes": "a,b c", "ignore_classes": "d", "rename": ["e=a", "f=b c"], "unknown": "skip"},
        **{"difficult": "drop", "voc_coords": "voc1", "exif": "raw", "background": "orphans", "model": "nano"},
        **{"epochs": 12, "max_minutes": 0, "batch": 4, "learning_rate": 0.001, "precision": "mixed_bfloat16"},
        **{"quantize": "qat", "stop_at_map": 0.5, "patience": 9, "max_drop": 2, "flips": False, "mosaic": 0.25},
        **{"vertical_flips": True, "quarter_turns": True, "rotate": 5, "local": True, "wait": True},
    }
    assert {name: read[name] for name in asked} == asked
    assert parse_options(JobSpec, read) == spec
    assert RunSpec(**dict(parse_options(TrainingOptions, read)), run="mine", job="mine") == run


def test_without_its_job_the_later_commands_are_left() -> None:
    commands = reproduce_commands(RunSpec(run="mine", job="gone"), None)
    assert [words.split()[:2] for words in commands] == [
        ["voc2tflite", verb] for verb in ("export", "evaluate", "predict")
    ]


def test_a_file_of_weights_is_named_where_the_store_keeps_it() -> None:
    run = RunSpec(run="mine", job="mine", backbone="mobilenet_v2", weights="weights/0123-top.h5")
    assert "--weights STORE/weights/0123-top.h5" in submit_command(run, job(JobSpec()))


def test_lint_is_summed_by_kind_worst_first() -> None:
    row = {"object": "", "found": "?", "done": "as it is"}
    findings = [
        {**row, "file": "a.xml", "kind": "no_size", "rank": "info"},
        {**row, "file": "b.xml", "kind": "no_size", "rank": "info"},
        {**row, "file": "c.jpg", "kind": "damaged", "rank": "quarantined", "found": "cut off", "done": "set aside"},
        {**row, "file": "a.xml", "kind": "box_clipped", "rank": "mended", "object": "3", "done": "clipped"},
    ]
    kinds = lint_kinds(findings)
    assert [(found.kind, found.count) for found in kinds] == [("damaged", 1), ("box_clipped", 1), ("no_size", 2)]
    assert kinds[0].example == "c.jpg: cut off"
    assert kinds[1].example == "a.xml, object 3: ?"


def test_job_that_is_gone_leaves_nothing_to_say(tmp_path: Path) -> None:
    asked = read_job_facts(Storage(str(tmp_path)), "gone")
    assert (asked.job, asked.lint) == (None, None)
