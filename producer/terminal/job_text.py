"""What the command line prints about jobs, for a person."""

import csv
import io
import json
import shlex
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.filesize import decimal
from rich.table import Column, Table
from rich.text import Text

from producer.finalize.lint_csv import OF_NO_PAIR
from producer.state.runs import retry_hint, run_words, ways_on
from producer.state.status import JobStatus
from producer.state.stored import TERMINAL, StoredState, load_job
from producer.terminal.console import Terminal
from producer.terminal.figures import age, duration, map_text
from producer.terminal.progress import pace, phase_text, results_table, run_facts, standing_text
from shared.command import hint, shown
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths, RunPaths
from shared.storage import Storage
from shared.text import counted

if TYPE_CHECKING:  # so that `status` starts without the modules that read photos and XML
    from producer.doctor.disk import Kind, Prunable
    from producer.doctor.setup import CheckResult
    from producer.jobs.submit import Admission

# How many shards that failed for the same reason are named.
_SHARDS_NAMED: Final = 3
# How many letters of a failed job's `why` fit in a line of 80 columns; the whole error is shown below.
_WHY_LETTERS: Final = 70


def admission_text(admission: "Admission", stored: StoredState, storage: Storage) -> str:
    """What a submit has led to, for a person; `stored` is the state of its job."""
    job = admission.job
    if admission.outcome == "known":
        return _known_text(job, stored, storage)
    if admission.outcome == "run" and job.run is not None:
        done = f"{len(stored.done)} of {counted(len(job.shards), 'shard')} are there already"
        return f"job {job.job}: run {job.run.run}, {done} → {storage.url(RunPaths(job.run.run).root)}"
    shards = counted(len(job.shards), "shard")
    usable = {split: job.counts.get(split, plan.pairs) for split, plan in job.splits.items()}
    splits = ", ".join(f"{split} {count:,}" for split, count in usable.items())
    aside = sum(plan.pairs for plan in job.splits.values()) - sum(usable.values())
    left = f" ({aside:,} more set aside)" if aside else ""
    read, kept = (job.counts.get(name, 0) for name in ("objects_read", "objects_kept"))
    emptied = job.counts.get("emptied", 0)
    lost = f", {counted(emptied, 'photo')} with no box inside the picture" if emptied else ""
    text = f"{splits} images{left}, {counted(read, 'object')} read, {kept:,} kept{lost}, {shards}"
    return "\n".join([text, f"→ {_place(storage.url(JobPaths(job.job).root))}", *_reuse_lines(admission)])


def _known_text(job: Job, stored: StoredState, storage: Storage) -> str:
    shards = counted(len(job.shards), "shard")
    if stored.state == "DONE" and not stored.failed:
        return f"job {job.job}: already done, {shards}{' and the model' if job.run else ''}, nothing to do"
    done = f"{len(stored.done)} of {shards} done"
    if stored.state in TERMINAL:
        if job.run is None and stored.state == "FAILED" and not stored.failed:
            return f"job {job.job}: known already, FAILED, {done}"
        failed = f", {len(stored.failed)} failed" if stored.failed else ""
        return f"job {job.job}: known already, {stored.state}, {done}{failed}: `{retry_hint(storage, job)}` goes on"
    return f"job {job.job}: known already, {done}; only what is missing is done"


def _reuse_lines(admission: "Admission") -> Iterator[str]:
    """What other jobs lent, and why they did not lend the rest."""
    reuse = admission.reuse
    if reuse is None:
        return
    count = f"{reuse.shards} of {counted(len(admission.job.shards), 'shard')} reused"
    lenders = f" from {', '.join(reuse.lenders)}" if reuse.lenders else ""
    because = "; ".join(reuse.reasons)
    if reuse.shards and because:
        yield f"{count}{lenders}; the others not, because {because}"
    else:
        yield f"{count}{lenders}, because {because or 'their photos are unchanged'}"


def status_text(status: JobStatus) -> str:
    """One job's status in a few lines."""
    reused = f" ({status.reused} reused)" if status.reused else ""
    took = "" if status.took_s is None else f", {duration(status.took_s)} of work"
    size = "" if status.size_bytes is None else f", {decimal(status.size_bytes)} on disk"
    aside = f", {status.quarantined} of them set aside" if status.quarantined else ""
    lines = [
        f"{status.job}: {status.state}",
        f"  why     {_cut(status.why, _WHY_LETTERS) if status.state == 'FAILED' else status.why}" if status.why else "",
        f"  next    {status.next}" if status.next else "",
        f"  age     {age(status.age_s)}{took}{size}" if status.age_s is not None else "",
        f"  photos  {status.images_done}/{status.images}{aside}",
        f"  shards  {status.done}/{status.shards} done{reused}{_counts_text(status)}",
        f"  pace    {pace(status)}" if pace(status) else "",
    ]
    lines += [
        f"  held    {holder['shard']} by {holder['worker']} (process {holder['pid']}) since "
        f"{_clock(holder['since'])}" + (f", {counted(holder['images'], 'photo')}" if holder.get("images") else "")
        for holder in status.holders
    ]
    lines += _failure_lines(status.failures)
    if status.last_error:
        lines.append(f"  error   {status.last_error} (the last one)")
    lines += _run_lines(status.run) if status.run else ()
    lines += _model_lines(status)
    for run in status.runs if len(status.runs) > 1 else ():
        lines.append(_run_text(run))
    return "\n".join(filter(None, lines))


def _failure_lines(failures: Mapping[str, str]) -> Iterator[str]:
    """The shards that failed, grouped by their reason."""
    shards: dict[str, list[str]] = {}
    for shard, reason in failures.items():
        shards.setdefault(reason.replace(shard, "…"), []).append(shard)
    for reason, names in shards.items():
        named = ", ".join(names[:_SHARDS_NAMED])
        rest = f" and {len(names) - _SHARDS_NAMED} more" if len(names) > _SHARDS_NAMED else ""
        yield f"  failed  {named}{rest}: {failures[names[0]] if len(names) == 1 else reason}"


def _run_text(run: Mapping[str, Any]) -> str:
    """One of several runs: its state, its mAP50, why nobody works on it, and what to type."""
    why = f", {run['why']}" if run.get("why") else ""
    page = f", {_place(run['page'])}" if "page" in run else ""
    following = f"\n          {run['next']}" if run.get("next") else ""
    return f"  --run   {run['run']}: {run['state']}{_figures_text(run)}{why}{page}{following}"


def _counts_text(status: JobStatus) -> str:
    """How many shards are in which state, except done, and how often shards were claimed."""
    counts = {name: getattr(status, name) for name in ("leased", "queued", "pending", "failed")}
    attempts = "" if status.attempts is None else f"; {counted(status.attempts, 'attempt')}"
    return "".join(f", {count} {name}" for name, count in counts.items() if count) + attempts


def _figures_text(run: Mapping[str, Any]) -> str:
    if run.get("map50") is None:
        return ""
    return f", mAP50 {map_text(run['map50'], run.get('map50_interval'), run.get('objects'))}"


def _model_lines(status: JobStatus) -> Iterator[str]:
    """The figures, model and warnings of a finished run."""
    if status.map50 is not None:
        yield f"  mAP50   {map_text(status.map50, status.map50_interval, status.objects)}, int8"
    if status.map is not None and status.objects != 0:
        yield f"  mAP     {map_text(status.map, status.map_interval)}"
    if status.model:
        yield f"  model   {_place(status.model)}"
    yield from (f"  warning {warning}" for warning in status.warnings)


def _run_lines(run: Mapping[str, Any]) -> Iterator[str]:
    """A run's name; while somebody works on it, how far it is and who does; if it failed, why."""
    phase = "failed" if "failed" in run else phase_text(run)
    yield f"  run     {run['run']}{f': {phase}' if phase else ''}"
    if run_facts(run):
        yield f"          {run_facts(run)}"
    if "changed" in run:
        yield f"          changed to {shlex.join(run['changed'])}"
    for line in str(run.get("failed", "")).splitlines():
        # Words are not broken, so that paths and commands stay whole.
        yield textwrap.indent(
            textwrap.fill(line, _WHY_LETTERS, break_long_words=False, break_on_hyphens=False), 10 * " "
        )
    if "worker" in run:
        heard = f", last heard {age(run['heard_s'])} ago" if "heard_s" in run else ""
        yield f"          held by {run['worker']} (process {run['pid']}) since {_clock(run['since'])}{heard}"


def _place(url: str) -> str:
    """A place in the store, as a shorter path if it is below the working folder."""
    return url if "://" in url else shown(Path(url))


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def jobs_table(statuses: Sequence[JobStatus]) -> Table:
    """All jobs, one per row; a `!` marks those with warnings."""
    columns = [Column("job", overflow="fold", min_width=12), Column("state", no_wrap=True)]
    columns += [Column(title, justify="right", no_wrap=True) for title in ("age", "worked", "photos", "mAP50", "size")]
    table = Table(*columns, box=None, padding=(0, 1, 0, 0))
    for status in statuses:
        table.add_row(
            status.job,
            f"{status.state}{' !' if status.warnings else ''}",
            "" if status.age_s is None else age(status.age_s),
            "" if status.took_s is None else duration(status.took_s),
            str(status.images),
            _score(status.map50, status.map50_interval, status.objects),
            "" if status.size_bytes is None else decimal(status.size_bytes),
        )
        for run in _added_runs(status):
            score = _score(run.get("map50"), run.get("map50_interval"), run.get("objects"))
            table.add_row(f"  --run {run['run']}", str(run["state"]), "", "", "", score)
    return table


def _score(map50: float | None, interval: Sequence[float] | None, objects: int | None) -> str:
    """The mAP50 for a table; a dash if it was measured on no object."""
    if map50 is None:
        return ""
    return "-" if objects == 0 else map_text(map50, interval)


def _added_runs(status: JobStatus) -> Sequence[Mapping[str, Any]]:
    """The runs of a job besides that of its submit, which the job's own row does not show."""
    return status.runs[1 if status.run else 0 :]


def remarks(statuses: Sequence[JobStatus], width: int) -> str:
    """A line for each job and added run, below the table: its model, its progress, or why nobody works on it."""
    lines = []
    for status in statuses:
        run = status.run or {}
        first = {**run, "state": status.state, "why": status.why, "next": status.next}
        first |= {"model": status.model, "objects": status.objects, "warnings": status.warnings}
        lines.append(_remark(status.job, first, width, pace(status)))
        lines += [_remark(f"{status.job} --run {run['run']}", run, width) for run in _added_runs(status)]
    return "\n".join(filter(None, lines))


def _remark(name: str, run: Mapping[str, Any], width: int, speed: str = "") -> str:
    """What is worth knowing about a job, or one of its runs, in a line; empty if there is nothing."""
    room, text = width - len(name) - 2, ""
    if run["state"] == "DONE" and "page" in run:
        text = _place(run["page"])
    elif run["state"] == "DONE" and run["model"]:
        objects, warnings = run.get("objects"), run.get("warnings")
        facts = [_place(run["model"]), "" if objects is None else f"mAP50 of {counted(objects, 'object')}"]
        text = " · ".join(filter(None, [*facts, counted(len(warnings), "warning") if warnings else ""]))
    elif run["state"] == "FAILED":
        text = _cut(str(run["why"]), room)
    elif run["why"]:
        text = standing_text(run["why"], run["next"])
        text = text if len(text) <= room or not run["next"] else f"{_cut(run['why'], room)}\n  {run['next']}"
    elif run["state"] != "DONE":
        # Without the validation's figures, which have no interval; `watch` shows how they rise.
        text = _cut(" · ".join(filter(None, [speed, phase_text(run), run_facts(_unvalidated(run))])), room)
    return f"{name}: {text}" if text else ""


def _unvalidated(run: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in ("val_map50", "val_map")}


def _cut(text: str, width: int) -> str:
    """As much of `text` as `width` columns hold; `status JOB` has the whole."""
    width = max(width, 20)
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def print_result(status: JobStatus, storage: Storage, console: Terminal, *, is_local: bool = False) -> None:
    """Print what a finished job has made, where it is, and what to do next; with `is_local`, submits get `--local`."""
    paths = JobPaths(status.job)
    added = "" if status.run is None or status.run["run"] == status.job else f"run {status.run['run']} of "
    shards = f"{counted(status.done, 'shard')}, {storage.url(paths.manifest)}"
    console.print(f"{added}{status.job}: {shards}", soft_wrap=True)
    console.print(f"lint report: {storage.url(paths.lint)}", soft_wrap=True)
    for text in _set_aside(status, storage, paths):
        console.print(text, style="yellow", soft_wrap=True)
    if status.run is None:
        return
    run = RunPaths(str(status.run["run"]))
    if not storage.exists(run.metrics):  # the run is part of an audit
        made = [key for key in (run.audit_page, run.audit_table, run.detections) if storage.exists(key)]
        for key in made:
            console.print(storage.url(key), soft_wrap=True)
        return
    metrics = json.loads(storage.read(run.metrics))
    console.print(results_table(metrics))
    split = next(iter(metrics.values())).get("split", "test")
    for warning in status.warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    for title, key in (
        ("metrics", run.metrics),
        ("model", run.int8 if storage.exists(run.int8) else run.raw_int8),
        (f"detections on {split} pictures", f"{run.root}/plots/detections.jpg"),
        ("report", f"{run.root}/report.html"),
    ):
        console.print(f"{title}: {storage.url(key)}", soft_wrap=True)
    advice = json.loads(storage.read(run.run)).get("advice", [])
    if advice:
        console.print("what to do next:")
    for each in advice:
        said, *commands = each.splitlines()
        console.print(f"  {said}", soft_wrap=True)
        for command in commands:
            console.print(f"    {_command_here(command, storage, is_local=is_local)}", soft_wrap=True)


def _set_aside(status: JobStatus, storage: Storage, paths: JobPaths) -> Iterator[str]:
    """What a person should know about the photos: what was set aside or dropped, and what may be wrong."""
    rows = list(csv.DictReader(io.StringIO((storage.read_or_none(paths.lint) or b"").decode())))
    if aside := status.quarantined:
        yield f"{counted(aside, 'photo')} set aside: lint.csv names {'it' if aside == 1 else 'them'}"
    left_out = {row["file"] for row in rows if row["rank"] == "quarantined" and row["done"] in OF_NO_PAIR}
    if left_out:
        yield f"{counted(len(left_out), 'file')} left out: lint.csv says why"
    kinds = Counter(row["kind"] for row in rows)
    if outside := kinds["box_outside"]:
        yield f"{counted(outside, 'box', 'boxes')} dropped, as outside of the photo: see lint.csv"
    if other := kinds["size_differs"]:
        yield f"{counted(other, 'photo')} whose size is not the one in the XML: boxes may be misplaced; see lint.csv"
    if guessed := kinds["exif_undecided"]:
        yield f"{counted(guessed, 'photo')} turned by EXIF, with boxes that fit either way: look at some; see lint.csv"
    if alike := kinds["near_duplicate_across_splits"]:
        same = f"{counted(alike, 'photo')} nearly the same as one of another split"
        yield f"{same}: figures are too good; see lint.csv, and --group-by for photos of one scene"


def _command_here(command: str, storage: Storage, *, is_local: bool) -> str:
    """A command from a report, adapted to work here: reports may be read anywhere, so they write STORE."""
    store = _place(storage.root)
    words = [
        store + word.removeprefix("STORE") if word.split("/")[0] == "STORE" else word for word in shlex.split(command)
    ]
    local = ["--local"] if is_local and words[1] == "submit" and "--local" not in words else []
    return hint(*words[1:], *local)


def failure_text(status: JobStatus, storage: Storage) -> str:
    """Why a job failed and what to do, for a person."""
    failed = f", {status.failed} of {counted(status.shards, 'shard')} failed" if status.failed else ""
    run = str(status.run["run"]) if status.run else None
    lines = [f"{' '.join([status.job, *run_words(status.job, run)])}: {status.state}{failed}"]
    lines += [f"  {shard}: {reason}" for shard, reason in sorted(status.failures.items())[:10]]
    if status.run is not None and "failed" in status.run:
        lines.append(f"  the run failed: {status.run['failed']}")
    if status.run is None and not status.failed:  # no photo could be used
        remove = hint("rm", status.job, store=storage)
        lines += [f"  {status.why}", f"lint report: {storage.url(JobPaths(status.job).lint)}"]
        return "\n".join([*lines, f"to go on: repair the photos, `{remove}`, and submit them again"])
    job = load_job(storage, status.job, run)
    ways = ways_on(storage, job) if run else []
    again = f"fix the cause, then `{retry_hint(storage, job)}` does only what is missing"
    lines.append(f"to go on: {' or '.join(f'`{way}`' for way in ways)}" if ways else again)
    return "\n".join(lines)


def prunable_table(found: Sequence["Prunable"], reasons: Mapping["Kind", str]) -> Table:
    """What may be pruned, one per row, with its size on disk and the reason."""
    table = Table("what", Column("disk", justify="right"), Column("why", overflow="fold"))
    for each in found:
        table.add_row(each.key, decimal(each.size_bytes), reasons[each.kind])
    return table


def checks_table(checks: Iterable["CheckResult"]) -> Table:
    """The doctor's findings, one per row."""
    table = Table(show_header=False)
    for check in checks:
        mark = Text("ok", "green") if check.is_well else Text("problem", "red")
        table.add_row(mark, check.name, check.found)
    return table


def remedies(checks: Iterable["CheckResult"]) -> Iterator[str]:
    """What to do about each problem, one line each: in a table cell a command could not be copied."""
    return (f"{check.name}: {check.advice}" for check in checks if not check.is_well and check.advice)
