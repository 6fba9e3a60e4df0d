"""What the tests of this folder share: environments of other projects, and whole jobs for them to read."""

import os
import subprocess
import venv
from pathlib import Path

from producer.dataset.lint import lint_folder
from producer.jobs.plan import PlanLines, plan_job
from shared.jobs.job import Job
from shared.jobs.paths import JobPaths
from shared.jobs.receipts import ShardReceipt
from shared.leasing.guard import Unguarded
from shared.specs.data import JobSpec
from shared.storage import Storage
from worker.shard import write_shard


def python_with(packages: list[str], *, variable: str, folder: Path) -> Path:
    """The interpreter of an environment of its own, with `packages` and whatever they need.

    Args:
        packages: As for pip.
        variable: Of the environment: may name an environment that is there already.
        folder: Where one is made otherwise.
    """
    named = os.environ.get(variable)
    if named:
        return Path(named, "bin", "python")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def write_job(voc: Path, spec: JobSpec, storage: Storage, *, skip: int = 0) -> tuple[Job, list[ShardReceipt]]:
    """Plan the folder `voc` and write all its shards but the first `skip`, without a queue."""
    linted = lint_folder(voc, spec=spec)
    tasks = plan_job(linted, job="peer")
    lines = PlanLines(tasks)
    storage.write_lines(JobPaths("peer").plan(""), lines)
    job = Job(
        job="peer",
        dataset="",
        folder=voc.name,
        spec=spec,
        run=None,
        labels=linted.labels.names,
        splits=tasks.split_plans(lines.digests),
        request_digest="0",
    )
    receipts = [
        write_shard(task, job, storage=storage, data_root=voc.parent, guard=Unguarded(), attempt=1)
        for task in list(tasks)[skip:]
    ]
    return job, receipts
