"""What a person reads at the end of a job."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from producer.terminal.console import Terminal
from producer.terminal.job_text import jobs_table, print_result, remarks, status_text
from shared.command import hint
from shared.storage import Storage
from tests.unit.producer.terminal.test_progress import training

ROW = {"split": "test", "map50": 0.9, "map": 0.5, "bytes": 1000, "median_ms": 2.0}


def printed(store: Path, split: str = "test", quarantined: int = 0, **run: object) -> str:
    """The end of a job that was measured on `split`, and whose `run.json` says `run`."""
    folder = store / "runs" / "j"
    folder.mkdir(parents=True)
    forms = ("float32", "float16", "dynamic", "int8")
    (folder / "metrics.json").write_text(json.dumps({form: {**ROW, "split": split} for form in forms}))
    (folder / "run.json").write_text(json.dumps(run))
    out = StringIO()
    print_result(
        replace(training(), quarantined=quarantined), Storage(str(store)), Terminal(file=out, width=80), is_local=True
    )
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
    rows = ["a.jpg,image_unreadable,quarantined,pair quarantined", "d.xml,link_outside,quarantined,refused"]
    rows += [
        "e.jpg,ambiguous_stem,quarantined,left out",
        "b.jpg,near_duplicate_across_splits,info,",
        "c.jpg,no_size,info,",
    ]
    (tmp_path / "jobs/j/lint.csv").write_text("\n".join(["file,kind,rank,done", *rows]))
    text = printed(tmp_path, quarantined=1)
    assert "1 photo set aside: lint.csv names it" in text
    assert "2 files left out: lint.csv says why" in text
    assert "1 photo nearly the same as one of another split" in text


def test_a_job_ends_with_the_boxes_that_are_lost_or_may_be_misplaced(tmp_path: Path) -> None:
    (tmp_path / "jobs/j").mkdir(parents=True)
    rows = ["a.xml,box_outside,dropped", "b.xml,box_outside,dropped", "a.jpg,size_differs,mended"]
    rows.append("c.jpg,exif_undecided,mended")
    (tmp_path / "jobs/j/lint.csv").write_text("\n".join(["file,kind,rank", *rows]))
    text = printed(tmp_path)
    assert "2 boxes dropped, as outside of the photo: see lint.csv" in text
    assert "1 photo whose size is not the one in the XML: boxes may be misplaced; see lint.csv" in text
    assert "1 photo turned by EXIF, with boxes that fit either way: look at some; see lint.csv" in text


def test_a_job_ends_with_the_split_that_its_pictures_are_of(tmp_path: Path) -> None:
    assert "detections on train pictures: " in printed(tmp_path / "few", "train")
    assert "detections on test pictures: " in printed(tmp_path / "many")


def listed(**run: object) -> str:
    """`list` at 80 columns: a job that is done, and its added run as `run` says."""
    done = {"state": "DONE", "map50": 1.0, "map50_interval": (0.981, 1.0), "objects": 26, "model": "/out/model"}
    status = replace(training(), state="DONE", runs=({"run": "j", **done}, {"run": "two", **done, **run}))
    status = replace(status, map50=1.0, map50_interval=(0.981, 1.0), objects=26, model="/out/model", took_s=3723.0)
    out = StringIO()
    console = Terminal(file=out, width=80)
    console.print(jobs_table([status]))
    console.print(remarks([status], 80), soft_wrap=True)
    return out.getvalue()


def test_the_list_has_interval_and_objects_of_every_map(tmp_path: Path) -> None:
    text = listed()
    assert text.count("100.0 % (98.1 to 100.0)") == 2
    assert "j: /out/model · mAP50 of 26 objects" in text
    assert "j --run two: /out/model · mAP50 of 26 objects" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_list_has_no_map_that_it_cannot_be_sure_of() -> None:
    facts = {"phase": "train", "step": 9, "loss": 0.5, "val_map50": 0.25, "val_map": 0.1, "val_epoch": 3}
    text = listed(state="TRAINING", why=None, next=None, map50=None, model=None, **facts)
    assert "j --run two: train, step 9 · loss 0.500" in text
    assert "25.0" not in text


def test_an_added_run_that_waits_says_so_in_the_list() -> None:
    text = listed(state="INTERRUPTED", why="nobody works on it", next="voc2tflite resume j --run two", map50=None)
    assert "j --run two: nobody works on it: `voc2tflite resume j --run two`" in text


def test_the_end_of_an_added_run_is_headed_by_the_run(tmp_path: Path) -> None:
    added = replace(training(), run={"run": "two"})
    (tmp_path / "runs/two").mkdir(parents=True)
    (tmp_path / "runs/two/metrics.json").write_text(
        json.dumps(dict.fromkeys(("float32", "float16", "dynamic", "int8"), ROW))
    )
    (tmp_path / "runs/two/run.json").write_text("{}")
    out = StringIO()
    print_result(added, Storage(str(tmp_path)), Terminal(file=out, width=80))
    assert out.getvalue().startswith("run two of j: 4 shards, ")
    assert printed(tmp_path).startswith("j: 4 shards, ")


def test_a_run_of_an_older_version_has_none(tmp_path: Path) -> None:
    assert "what to do next" not in printed(tmp_path)


def test_a_job_that_nobody_works_on_has_no_pace() -> None:
    working = replace(training(), state="RUNNING", run=None, images_per_s=22.0, eta_s=105.0, why=None)
    assert "  pace    22 images/s · ETA 1:45" in status_text(working).splitlines()
    idle = replace(working, why="3 of 9 shards done, nobody works on it")
    assert "pace" not in status_text(idle)
    assert "ETA" not in remarks([idle], 80)


def test_shards_that_failed_for_one_reason_have_one_line() -> None:
    full = {f"train-0000{at}-of-00006": f"cannot write train-0000{at}-of-00006: No space left" for at in range(5)}
    failures = {**full, "val-00000-of-00001": "its picture killed the decoder"}
    lines = [line for line in status_text(replace(training(), failures=failures)).splitlines() if "failed  " in line]
    assert lines == [
        "  failed  train-00000-of-00006, train-00001-of-00006, train-00002-of-00006 and 2 more: "
        "cannot write …: No space left",
        "  failed  val-00000-of-00001: its picture killed the decoder",
    ]


def test_a_run_that_was_measured_on_no_object_has_a_dash_and_a_word() -> None:
    nothing: dict[str, Any] = {"map50": 0.0, "map50_interval": (0.0, 1.0), "objects": 0}
    (row,) = [line for line in listed(**nothing).splitlines() if line.startswith("  --run two")]
    assert row.split()[-2:] == ["DONE", "-"]
    text = status_text(replace(training(), state="DONE", map=0.0, map_interval=(0.0, 1.0), **nothing))
    assert "  mAP50   not measured (0 objects), int8" in text
    assert "  mAP  " not in text


def test_each_of_several_runs_says_why_it_stands_still_and_what_goes_on() -> None:
    done = {"run": "j", "state": "DONE", "map50": 1.0, "map50_interval": (0.981, 1.0), "objects": 26}
    left = {"run": "two", "state": "INTERRUPTED", "why": "interrupted at step 9 of 20", "next": "voc2tflite resume j"}
    lines = status_text(replace(training(), runs=(done, left))).splitlines()
    assert lines[-3:] == [
        "  --run   j: DONE, mAP50 100.0 % (98.1 to 100.0, 26 objects)",
        "  --run   two: INTERRUPTED, interrupted at step 9 of 20",
        "          voc2tflite resume j",
    ]
