"""What the progress shows."""

from io import StringIO

from rich.console import Console

from producer.watch import Screen, run_facts


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


def test_stage_without_a_count_stands_while_it_lasts() -> None:
    assert "check" in last_frame(("shards", 4, 4), ("check", 0, 0))


def test_without_a_terminal_each_stage_is_a_line() -> None:
    out = StringIO()
    with Screen(Console(file=out, width=100)) as screen:
        screen.stage("shards", 1, 4, "12 images/s")
        screen.stage("shards", 4, 4)
    assert out.getvalue().splitlines() == ["shards: 1/4 12 images/s", "shards: 4/4"]


def test_a_terminal_of_80_columns_shows_every_figure_of_a_run() -> None:
    out = StringIO()
    run = {"epoch": 34, "epochs": 84, "loss": 3.068, "val_map50": 0.812, "val_map": 0.512, "busy": 1.0, "eta_s": 2039}
    with Screen(Console(file=out, force_terminal=True, width=80, color_system=None)) as screen:
        screen.stage("train", 1215, 3024, run_facts(run))
    frame = out.getvalue().split("\x1b[2K")[-1]
    for shown in ("1215/3024", "34/84", "3.068", "0.812", "0.512", "100%", "33:59"):
        assert shown in frame
