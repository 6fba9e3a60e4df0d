"""The commands that remove: `rm` jobs and runs, `prune` what nobody needs."""

import json
import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer.cli.common_options import JsonOption, RunOption, StoreOption
from producer.cli.session import EXIT_ERROR, out, reachable_ledger, read_settings, screen_console
from shared import command
from shared.errors import OptionError, PipelineError
from shared.text import counted, printable

if TYPE_CHECKING:
    from shared.storage import Storage

app = typer.Typer()

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

_SECONDS: Final = {"h": 3600, "d": 86_400, "w": 604_800}


@app.command()
def rm(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Names of jobs.")] = None,
    run: RunOption = None,
    older: Annotated[
        str | None,
        typer.Option(help="All jobs that ended at least this long ago, such as 12h, 30d or 8w; the others stay."),
    ] = None,
    store: StoreOption = None,
    *,
    yes: YesOption = False,
) -> None:
    """Remove shards and models of jobs, or one run of a job, from the store. The photos are never touched.

    Example: [bold]voc2tflite rm bccd --yes[/bold]

    Months later: [bold]voc2tflite rm --older 30d[/bold]
    """
    from producer.audit.decisions import with_decisions
    from producer.jobs.removal import remove, require_removable
    from shared.storage import Storage

    if bool(jobs) == (older is not None) or (run is not None and len(jobs or ()) != 1):
        raise OptionError("expected names of jobs, or --older without names; --run goes with one name")
    settings = read_settings(store)
    storage = Storage(settings.store)
    names = jobs or _ended_before(storage, time.time() - _seconds(older or ""), settings.failed_share)
    if not names:
        out.print(f"no job in {storage.root} ended that long ago")
        return
    ledger, has_failed = reachable_ledger(settings), False
    if not yes:
        for name in names:
            require_removable(storage, ledger, name, run)
        what = ", ".join(f"jobs/{name}" for name in names) + " and all runs"
        if run is not None:
            what = f"runs/{run}{with_decisions(storage, run)}"
        typer.confirm(printable(f"Remove {what} from {settings.store}?"), abort=True)
    for name in names:
        try:
            out.print(remove(storage, ledger, name, run), soft_wrap=True)
        except PipelineError as error:
            command.complain(str(error))
            has_failed = True
    if has_failed:
        raise typer.Exit(EXIT_ERROR)


@app.command()
def prune(
    store: StoreOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what was found.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show files that are no longer needed: checkpoints of finished runs, leftovers, orphans. --yes removes them.

    Example: [bold]voc2tflite prune --store out[/bold]

    Jobs, shards, models, metrics and reports stay; `rm` removes those.
    """
    from rich.filesize import decimal

    from producer.doctor import disk
    from producer.terminal import job_text
    from shared.storage import Storage

    storage = Storage(read_settings(store).store)
    found = disk.prunable(storage)
    total = sum(each.size_bytes for each in found)
    if as_json:
        typer.echo(json.dumps({"bytes": total, "removed": yes, "found": [asdict(each) for each in found]}, indent=2))
    elif found:
        out.print(job_text.prunable_table(found, disk.REASONS))
    if yes:
        disk.prune(storage, found)
    if as_json:
        return
    if not found:
        out.print(f"nothing to prune in {storage.root}; what is younger than a day stays", soft_wrap=True)
    elif yes:
        out.print(f"{decimal(total)} freed")
    else:
        remove = command.hint("prune", "--yes", store=storage)
        out.print(f"nothing was removed yet: `{remove}` frees {decimal(total)}", soft_wrap=True)


def _seconds(text: str) -> int:
    """The seconds of a time span such as 30d."""
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    if match is None:
        raise OptionError(f"--older {text}: expected a number with h, d or w, such as 30d")
    return int(match[1]) * _SECONDS[match[2]]


def _ended_before(storage: "Storage", moment: float, failed_share: float) -> list[str]:
    """The names of the jobs that ended before `moment` (Unix time in s); jobs that have not ended are printed.

    A job has failed if more than `failed_share` of its shards have.
    """
    from producer.state.runs import requests_by_job, runs_of
    from producer.state.stored import TERMINAL, last_change, run_state, stored_state
    from shared.jobs.identity import readable_jobs

    requests = requests_by_job(storage)
    names: list[str] = []
    going: list[str] = []
    for job in readable_jobs(storage):
        runs = runs_of(storage, job, requests)
        if last_change(storage, job, [asked.run for asked in runs]) >= moment:
            continue
        stored = stored_state(storage, job, failed_share)
        states = [stored.state, *(run_state(storage, asked) for asked in runs if stored.is_finalized)]
        (names if TERMINAL.issuperset(states) else going).append(job.job)
    if going:
        have = "has" if len(going) == 1 else "have"
        text = f"{counted(len(going), 'job')} {have} not ended and will stay: {', '.join(going)}"
        screen_console.print(text, soft_wrap=True)
    return names
