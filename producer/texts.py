"""What the command line prints of jobs, for a person."""

import time
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from producer.doctor import Check
from producer.state import JobStatus
from producer.submit import Admission
from producer.watch import read_metrics, results_table, shard_facts
from shared.manifest import JobPaths, RunPaths
from shared.storage import Storage


def admission_text(admission: Admission, storage: Storage) -> str:
    """What became of a submit, for a person."""
    job = admission.job
    shards = len(job.shards)
    splits = ", ".join(f"{split} {plan.pairs}" for split, plan in job.splits.items())
    read, kept = (job.counts.get(name, 0) for name in ("objects_read", "objects_kept"))
    objects = f"{read} objects read, {kept} kept, of {len(job.labels)} classes"
    if admission.outcome == "known":
        return f"job {job.job}: known already ({shards} shards, {splits}); only what is missing is done"
    return f"job {job.job}: {splits} images, {objects}, {shards} shards → {storage.url(JobPaths(job.job).root)}"


def status_text(status: JobStatus) -> str:
    """One job's status in a few lines."""
    lines = [
        f"{status.job}: {status.state}",
        f"  images {status.images_done}/{status.images}, {status.quarantined} quarantined",
        f"  shards {status.done}/{status.shards} done, {status.leased} leased, {status.queued} queued, "
        f"{status.pending} pending, {status.failed} failed; {status.attempts} attempts",
    ]
    lines += [
        f"  {holder['shard']} is held by {holder['worker']} (process {holder['pid']}) since "
        f"{time.strftime('%H:%M:%S', time.localtime(holder['since']))}, {holder.get('images', 0)} images"
        for holder in status.holders
    ]
    lines += [f"  failed: {shard}: {reason}" for shard, reason in status.failures.items()]
    if status.last_error:
        lines.append(f"  last error: {status.last_error}")
    if status.run:
        lines.append("  run: " + ", ".join(f"{key} {value}" for key, value in status.run.items()))
    return "\n".join(lines)


def jobs_table(statuses: Sequence[JobStatus]) -> Table:
    """All jobs, one a row."""
    table = Table()
    for title in ("job", "state", "images", "shards", "failed", "at"):
        table.add_column(title)
    for status in statuses:
        table.add_row(
            status.job,
            status.state,
            f"{status.images_done}/{status.images}",
            f"{status.done}/{status.shards}",
            str(status.failed),
            shard_facts(status, 0) if status.state == "RUNNING" else "",
        )
    return table


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


def failure_text(status: JobStatus, storage: Storage) -> str:
    """Why a job failed and what to do, for a person."""
    lines = [f"{status.job}: {status.state}, {status.failed} of {status.shards} shards failed"]
    lines += [f"  {shard}: {reason}" for shard, reason in sorted(status.failures.items())[:10]]
    if status.run is not None:
        reason = storage.read_or_none(RunPaths(str(status.run["run"])).failed)
        if reason is not None:
            lines.append(f"  the run failed: {reason.decode()}")
    lines.append(f"mend the cause, then `producer retry {status.job}` does only what is missing")
    return "\n".join(lines)


def checks_table(checks: Iterable[Check]) -> Table:
    """The doctor's findings, one a row."""
    table = Table(show_header=False)
    for check in checks:
        mark = Text("well", "green") if check.is_well else Text("ill", "red")
        table.add_row(mark, check.name, check.found if check.is_well else f"{check.found}\n-> {check.advice}")
    return table
