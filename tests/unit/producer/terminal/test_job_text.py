"""What a person reads at the end of a job."""

import json
from io import StringIO
from pathlib import Path

from producer.terminal.console import Terminal
from producer.terminal.job_text import print_result
from shared.command import hint
from shared.storage import Storage
from tests.unit.producer.terminal.test_progress import training

ROW = {"split": "test", "map50": 0.9, "map": 0.5, "bytes": 1000, "median_ms": 2.0}


def printed(store: Path, **run: object) -> str:
    """The end of a job whose `run.json` says `run`."""
    folder = store / "runs" / "j"
    folder.mkdir(parents=True)
    forms = ("float32", "float16", "dynamic", "int8")
    (folder / "metrics.json").write_text(json.dumps(dict.fromkeys(forms, ROW)))
    (folder / "run.json").write_text(json.dumps(run))
    out = StringIO()
    print_result(training(), Storage(str(store)), Terminal(file=out, width=80), is_local=True)
    return out.getvalue()


def test_a_job_ends_with_its_advice_and_commands_that_work_as_printed(tmp_path: Path) -> None:
    longer = "voc2tflite submit --job j --run j-longer --store STORE --rename 'no number=none'"
    predict = "voc2tflite predict STORE/runs/j/model_int8.tflite PHOTOS"
    advice = [f"train longer:\n{longer}", f"try it:\n{predict}", "[red]quen[/red] has 1 object"]
    lines = printed(tmp_path / "my store", advice=advice).splitlines()
    store = f"{tmp_path}/my store"
    assert lines[-6:] == [
        "what to do next:",
        "  train longer:",
        f"    {hint('submit')} --job j --run j-longer --store '{store}' --rename 'no number=none' --local",
        "  try it:",
        f"    {hint('predict')} '{store}/runs/j/model_int8.tflite' PHOTOS",
        "  [red]quen[/red] has 1 object",
    ]


def test_a_job_ends_with_the_photos_that_are_not_in(tmp_path: Path) -> None:
    (tmp_path / "jobs/j").mkdir(parents=True)
    rows = ["a.jpg,image_unreadable,quarantined", "b.jpg,near_duplicate_across_splits,info", "c.jpg,no_size,info"]
    (tmp_path / "jobs/j/lint.csv").write_text("\n".join(["file,kind,rank", *rows]))
    text = printed(tmp_path)
    assert "1 photo set aside: lint.csv names it" in text
    assert "1 photo nearly the same as one of another split" in text


def test_a_run_of_an_older_version_has_none(tmp_path: Path) -> None:
    assert "what to do next" not in printed(tmp_path)
