"""What the command line prints of jobs, for a person."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from producer.doctor import Check
from producer.state import TERMINAL, JobStatus, Stored
from producer.submit import Admission
from producer.watch import pace, read_metrics, results_table, run_facts
from shared.job import Job
from shared.manifest import JobPaths, RunPaths
from shared.storage import Storage


def admission_text(admission: Admission, stored: Stored, storage: Storage) -> str:
    """What became of a submit whose job is `stored` so, for a person."""
    job = admission.job
    if admission.outcome == "known":
        return _known_text(job, stored)
    shards = len(job.shards)
    splits = ", ".join(f"{split} {plan.pairs}" for split, plan in job.splits.items())
    read, kept = (job.counts.get(name, 0) for name in ("objects_read", "objects_kept"))
    objects = f"{read} objects read, {kept} kept, of {len(job.labels)} classes"
    text = f"job {job.job}: {splits} images, {objects}, {shards} shards → {storage.url(JobPaths(job.job).root)}"
    return "\n".join([text, *_reuse_lines(admission)])


def _known_text(job: Job, stored: Stored) -> str:
    shards = len(job.shards)
    if stored.state == "DONE" and not stored.failed:
        return f"job {job.job}: already done, {shards} shards{' and the model' if job.run else ''}, nothing to do"
    done = f"{len(stored.done)} of {shards} shards done"
    if stored.state in TERMINAL:
        failed = f", {len(stored.failed)} failed" if stored.failed else ""
        return f"job {job.job}: known already, {stored.state}, {done}{failed}: `producer retry {job.job}` goes on"
    return f"job {job.job}: known already, {stored.state}, {done}; only what is missing is done"


def _reuse_lines(admission: Admission) -> Iterator[str]:
    """What other jobs lent, or why those of the same folder could not."""
    reuse, shards = admission.reuse, len(admission.job.shards)
    if reuse is None:
        return
    if reuse.shards:
        yield f"reused {reuse.shards} of {shards} shards of {', '.join(reuse.lenders)}, their pairs are unchanged"
    for refusal in reuse.refusals:
        yield f"no shard of {refusal}"


def status_text(status: JobStatus) -> str:
    """One job's status in a few lines."""
    reused = f" ({status.reused} reused)" if status.reused else ""
    attempts = "attempts not known any more" if status.attempts is None else f"{status.attempts} attempts"
    lines = [
        f"{status.job}: {status.state}",
        f"  images  {status.images_done}/{status.images}, {status.quarantined} quarantined",
        f"  shards  {status.done}/{status.shards} done{reused}, {status.leased} leased, {status.queued} queued, "
        f"{status.pending} pending, {status.failed} failed; {attempts}",
    ]
    if pace(status):
        lines.append(f"  pace    {pace(status)}")
    lines += [
        f"  held    {holder['shard']} by {holder['worker']} (process {holder['pid']}) since "
        f"{_clock(holder['since'])}, {holder.get('images', 0)} images"
        for holder in status.holders
    ]
    lines += [f"  failed  {shard}: {reason}" for shard, reason in status.failures.items()]
    if status.last_error:
        lines.append(f"  error   {status.last_error} (the last one)")
    if status.run:
        lines.append(f"  run     {_run_text(status.run)}")
    return "\n".join(lines)


def _run_text(run: Mapping[str, Any]) -> str:
    """A run's name, then why it failed, or its phase and pace, and who works on it."""
    facts = [str(run["run"])]
    if "failed" in run:
        facts.append(f"failed: {run['failed']}")
    if "phase" in run:
        step = f", step {run['step']}/{run.get('steps', '?')}" if "step" in run else ""
        facts.append(f"{run['phase']}{step}")
    if run_facts(run):
        facts.append(run_facts(run))
    if "worker" in run:
        facts.append(f"held by {run['worker']} (process {run['pid']}) since {_clock(run['since'])}")
    return " · ".join(facts)


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def jobs_table(statuses: Sequence[JobStatus]) -> Table:
    """All jobs, one a row."""
    table = Table()
    for title in ("job", "state", "images", "shards", "failed", "now"):
        table.add_column(title, overflow="fold")
    for status in statuses:
        table.add_row(
            status.job,
            status.state,
            f"{status.images_done}/{status.images}",
            f"{status.done}/{status.shards}",
            str(status.failed),
            _now(status),
        )
    return table


def _now(status: JobStatus) -> str:
    """What goes on with a job that has not ended well: pace, phase of its run, or its last error."""
    if status.state == "DONE":
        return ""
    run = status.run or {}
    facts = [pace(status), str(run.get("phase", "")), run_facts(run), str(run.get("failed", "")), status.last_error]
    return " · ".join(fact for fact in facts if fact)


def print_result(status: JobStatus, storage: Storage, console: Console) -> None:
    """What a finished job has made, and where it is."""
    paths = JobPaths(status.job)
    console.print(f"{status.job}: {status.done} shards, {storage.url(paths.manifest)}", highlight=False, soft_wrap=True)
    console.print(f"lint report: {storage.url(paths.lint)}", highlight=False, soft_wrap=True)
    if status.run is None:
        return
    run = RunPaths(str(status.run["run"]))
    console.print(results_table(read_metrics(storage, str(status.run["run"]))))
    for title, key in (
        ("metrics", run.metrics),
        ("model", f"{run.root}/model_int8.tflite"),
        ("detections on test pictures", f"{run.root}/plots/detections.jpg"),
        ("report", f"{run.root}/report.html"),
    ):
        console.print(f"{title}: {storage.url(key)}", highlight=False, soft_wrap=True)


def failure_text(status: JobStatus) -> str:
    """Why a job failed and what to do, for a person."""
    lines = [f"{status.job}: {status.state}, {status.failed} of {status.shards} shards failed"]
    lines += [f"  {shard}: {reason}" for shard, reason in sorted(status.failures.items())[:10]]
    if status.run is not None and "failed" in status.run:
        lines.append(f"  the run failed: {status.run['failed']}")
    lines.append(f"mend the cause, then `producer retry {status.job}` does only what is missing")
    return "\n".join(lines)


def checks_table(checks: Iterable[Check]) -> Table:
    """The doctor's findings, one a row."""
    table = Table(show_header=False)
    for check in checks:
        mark = Text("well", "green") if check.is_well else Text("ill", "red")
        table.add_row(mark, check.name, check.found if check.is_well else f"{check.found}\n-> {check.advice}")
    return table
