"""What the progress shows."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from producer.state.status import JobStatus
from producer.terminal import progress
from producer.terminal.progress import FORMS, Screen, results_table, shard_facts


def last_frame(*stages: tuple[str, int, int]) -> str:
    """What stands on a terminal of 100 columns after these (name, done, total)."""
    out = StringIO()
    with Screen(Console(file=out, force_terminal=True, width=100, color_system=None)) as screen:
        for name, done, total in stages:
            screen.stage(name, done, total)
    return out.getvalue().split("\x1b[2K")[-1]


def test_stage_without_a_count_goes_when_the_next_begins() -> None:
    frame = last_frame(("shards", 4, 4), ("check", 0, 0), ("train", 1, 9))
    assert "shards" in frame
    assert "train" in frame
    assert "check" not in frame


def test_the_clock_of_a_stage_that_was_interrupted_goes_on() -> None:
    now = 1000.0
    console = Console(file=StringIO(), force_terminal=True, width=100, color_system=None, get_time=lambda: now)
    with Screen(console) as screen:
        screen.stage("shards", 1, 4)
        now += 90
        screen.stage("waiting", 0, 0)
        now += 20
        screen.stage("shards", 2, 4)
        now += 5
        screen.stage("check", 0, 0)
        now += 500
    assert re.search(r"shards .* 1:55 ", console.file.getvalue().split("\x1b[2K")[-1])  # type: ignore[attr-defined]


def test_the_last_line_leaves_room_for_what_ctrl_c_echoes() -> None:
    out = StringIO()
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        screen.stage("shards", 1, 4, "12 images/s")
    assert "  12 images/s\n" in out.getvalue(), "filled up to the edge, the echo wraps, and the bar is drawn twice"


def test_stage_without_a_count_stands_while_it_lasts() -> None:
    assert "check" in last_frame(("shards", 4, 4), ("check", 0, 0))


def test_without_a_terminal_each_stage_is_a_line() -> None:
    out = StringIO()
    with Screen(Console(file=out, width=100)) as screen:
        screen.stage("shards", 1, 4, "12 images/s")
        screen.stage("shards", 4, 4)
    assert out.getvalue().splitlines() == ["shards: 1/4 12 images/s", "shards: 4/4"]


RUN = {"epoch": 34, "epochs": 84, "loss": 3.068, "val_map50": 0.812, "val_map": 0.512, "busy": 1.0, "eta_s": 2039}


def training(**facts: object) -> JobStatus:
    """A job that trains, as far as `facts` of its run say."""
    counts = {"shards": 4, "done": 4, "reused": 0, "queued": 0, "leased": 0, "failed": 0, "pending": 0}
    pictures = {"images": 40, "images_done": 40, "quarantined": 0, "attempts": 4, "images_per_s": 0.0, "eta_s": None}
    return JobStatus(job="j", state="TRAINING", **counts, **pictures, last_error=None, run={"run": "j", **facts})  # type: ignore[arg-type]


def frame_of(*runs: dict[str, object], width: int = 80) -> list[str]:
    """The lines that stand on a terminal at last when a job is seen with these facts of its run, in their order."""
    out = StringIO()
    with Screen(Console(file=out, force_terminal=True, width=width, color_system=None)) as screen:
        for run in ({}, *runs):
            screen.job(training(**run), 2)
    return out.getvalue().split("\x1b[2K")[-1].splitlines()


def test_a_terminal_of_80_columns_shows_every_figure_of_a_run() -> None:
    shards, train, facts, *rest = frame_of({"phase": "train", "step": 1215, "steps": 3024, "seconds": 725.4, **RUN})
    assert shards.split()[:1] + shards.split()[-2:] == ["shards", "40/40", "0:00"]
    assert train.split()[0] == "train"
    assert train.rstrip().endswith("1215/3024 12:05   ETA 33:59")
    assert facts.strip() == "epoch 34/84 · loss 3.068 · val mAP50 81.2 % · mAP 51.2 % · busy 100%"
    assert not "".join(rest).replace("\x1b[?25h", "")
    assert max(map(len, (shards, train, facts))) <= 80


def test_a_phase_shows_its_own_facts_and_none_of_the_one_before() -> None:
    frame = "\n".join(frame_of({"phase": "train", "step": 9, "steps": 9, **RUN}, {"phase": "export", "form": "int8"}))
    assert "int8" in frame
    for left in ("epoch", "loss", "ETA", "busy"):
        assert left not in frame, left


def test_training_that_begins_again_has_a_clock_of_its_own() -> None:
    again = {"phase": "train", "step": 5, "steps": 9, "seconds": 61.0}
    lines = frame_of({"phase": "train", "step": 7, "steps": 9}, {"phase": "check"}, again)
    assert [line.split()[0] for line in lines[:2]] == ["shards", "train"]
    assert "5/9" in lines[1]
    assert "1:01" in lines[1]


def test_why_nothing_moves_is_said_whole() -> None:
    out = StringIO()
    idle = replace(training(), state="INTERRUPTED", why="interrupted at step 7, nobody works on it", next="resume j")
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        for _ in range(3):
            screen.job(idle, 0)
    assert "interrupted at step 7, nobody works on it" in out.getvalue().split("\x1b[2K")[-1]


def test_a_way_on_of_a_moment_is_not_told() -> None:
    out = StringIO()
    idle = replace(training(), state="RUNNING", run=None, why="no `serve` is running", next="voc2tflite serve")
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        for _ in range(3):
            screen.job(idle, 0)
    assert "to go on" not in out.getvalue()


def test_a_command_wider_than_the_terminal_is_told_once_and_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LASTS_S", 0.0)
    out, command = StringIO(), f"voc2tflite resume j --store {'/a/long/way/down' * 6}"
    idle = replace(training(), state="INTERRUPTED", why="interrupted at step 7, nobody works on it", next=command)
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        for _ in range(3):
            screen.job(idle, 0)
    assert out.getvalue().count(command) == 1


def test_a_training_whose_end_nobody_saw_ends_with_all_of_its_steps() -> None:
    runs = [{"phase": "train", "step": 79, "steps": 94}, {"phase": "export", "trained": 94, "seconds": 61.0}]
    _, train, *_ = frame_of(*runs)
    assert train.split()[-2:] == ["94/94", "1:01"]
    early = [{"phase": "train", "step": 79, "steps": 94}, {"phase": "export", "trained": 80, "seconds": 61.0}]
    assert "80/80" in frame_of(*early)[1]


def test_a_validation_is_told_once() -> None:
    out, run = StringIO(), {"phase": "train", "step": 1, "steps": 9}
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        for more in ({}, {}, {**RUN, "val_epoch": 3}, {**RUN, "val_epoch": 3, "loss": 1.5}):
            screen.job(training(**run, **more), 2)
    assert out.getvalue().count("epoch 3: val mAP50 81.2 % · mAP 51.2 %") == 1


def test_the_widest_figures_of_a_run_fit_into_80_columns_with_their_intervals() -> None:
    row = {"map50": 1.0, "map50_interval": [1.0, 1.0], "map": 0.993, "map_interval": [0.981, 1.0], "objects": 1234}
    metrics = {form: row | {"bytes": 16_026_923, "median_ms": 112.34} for form in FORMS}
    console = Console(width=80, file=StringIO())
    console.print(results_table(metrics))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    for form in FORMS:
        (line,) = [line for line in lines if form in line]
        assert "100.0 (100.0 to 100.0)" in line
        assert "99.3 (98.1 to 100.0)" in line
        assert "112.34" in line


def test_a_run_of_an_older_version_has_figures_without_intervals() -> None:
    metrics = {form: {"map50": 0.9, "map": 0.5, "bytes": 1000, "median_ms": 1.0} for form in FORMS}
    console = Console(width=80, file=StringIO())
    console.print(results_table(metrics))
    assert "90.0" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_mean_over_no_object_is_shown_as_none() -> None:
    row = {"map50": 0.0, "map50_interval": [0.0, 1.0], "map": 0.0, "map_interval": [0.0, 1.0], "objects": 0}
    table = results_table({form: row | {"bytes": 1000, "median_ms": 1.0} for form in FORMS})
    assert table.title == "Test split, 0 objects, by LiteRT"
    assert [list(table.columns[at].cells) for at in (1, 2)] == [["-"] * len(FORMS)] * 2


def test_files_of_both_kinds_are_in_one_table_those_without_suppression_below() -> None:
    row = {"map50": 1.0, "map50_interval": [1.0, 1.0], "map": 0.993, "map_interval": [0.981, 1.0], "objects": 1234}
    both = [f"{form}{raw}" for form in reversed(FORMS) for raw in ("_raw", "")]
    metrics = {form: row | {"bytes": 16_026_923, "median_ms": 112.34} for form in both}
    console = Console(width=80, file=StringIO())
    console.print(results_table(metrics))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    words = [word.strip("│┃") for line in lines for word in line.split()]
    shown = [word for word in words if word.removesuffix("_raw") in FORMS]
    assert shown == [*FORMS, *(f"{form}_raw" for form in FORMS)]


def test_one_worker_process_and_one_object_are_spoken_of_as_one() -> None:
    assert shard_facts(training(), 1).startswith("1 worker process · ")
    assert "2 worker processes" in shard_facts(training(), 2)
    row = {"map50": 1.0, "map": 1.0, "objects": 1, "bytes": 1000, "median_ms": 1.0}
    assert results_table(dict.fromkeys(FORMS, row)).title == "Test split, 1 object, by LiteRT"
