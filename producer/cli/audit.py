"""The command that looks for wrong labels: `audit`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer.cli.common_options import (
    JobName,
    JsonOption,
    LocalOption,
    NotifyOption,
    StoreOption,
    WorkersOption,
    with_model_options,
)
from producer.cli.session import EXIT_ERROR, end, go_on, out, read_settings, screen_console, start_options, with_notify
from shared import command
from shared.errors import OptionError
from shared.specs.data import JobSpec
from shared.specs.options import words
from shared.specs.run import MOST_FOLDS, FoldOptions
from shared.text import counted

if TYPE_CHECKING:
    from producer.settings import ProducerSettings

app = typer.Typer()

# The value of `--accept` that means the decisions made on the page.
ON_THE_PAGE: Final = "decisions"


@app.command(name="audit")
@with_model_options
def audit_command(  # long: an option each
    job: JobName,
    *,
    training: FoldOptions,
    folds: Annotated[
        int,
        typer.Option(
            min=2, max=MOST_FOLDS, help="Trainings; each learns from all photos except the part that it checks."
        ),
    ] = 3,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Use the model of a finished run instead of training: takes minutes, but finds less."
        ),
    ] = False,
    run: Annotated[str | None, typer.Option("--run", help="The finished run for --quick; default: the job's.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="A new folder for audit.html, audit.csv and proposals/; with --accept: for the corrected copy.",
        ),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            help="Correct a copy of the photos by the findings that are right: audit.csv with yes in their rows, any "
            "CSV with a column id, a least score, or `decisions` (those made on the page)."
        ),
    ] = None,
    store: StoreOption = None,
    local: LocalOption = False,
    workers: WorkersOption = 2,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end, with progress.")] = True,
    notify: NotifyOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find labels that are missing, made up, misplaced, duplicate or of the wrong class, and propose better ones.

    Every photo is judged by a model that did not learn from it (except with --quick). The photos are never touched: the
    results are in the store and in --out, and --accept writes a corrected copy. Give the same command again to continue
    an audit that was interrupted, or to see again what was found.

    Example: [bold]voc2tflite audit photos --local --store out --out doubts[/bold]

    Accept the rows with yes: [bold]voc2tflite audit photos --accept doubts/audit.csv --out corrected[/bold]

    Exit code 0: it is done (with --no-wait: accepted); 1: an error; 2: a wrong option; 3: the audit failed; 4: it was
    cancelled.
    """
    settings = read_settings(store)
    if run is not None and not quick:
        raise OptionError(f"--run {run}: it names the finished run that --quick asks; an audit by folds trains its own")
    if accept is not None:
        _accept(settings, job, accept, 0 if quick else folds, folder)
        return
    from producer.audit.accepted import read_findings
    from producer.audit.ask import AuditRequest, audit_name, start_audit
    from producer.audit.corrected_copy import check_free
    from producer.audit.kept_before import kept_labels
    from producer.audit.results import copy_results, is_copy, results_text
    from producer.state.stored import load_job
    from shared.storage import Storage

    if folder is not None:
        if not wait and not local:
            raise OptionError("--out needs --wait; without it the results are in the store")
        if not (folder / "audit.csv").exists():
            check_free(folder, "--out")
    confirm = go_on if sys.stdin.isatty() and not yes and not as_json else None
    options = with_notify(start_options(settings, local=local, wait=wait, workers=workers, confirm=confirm), notify)
    storage = Storage(settings.store)
    known = load_job(storage, job)
    model_of = (run or (known.run.run if known.run is not None else job)) if quick else None
    status = start_audit(AuditRequest(name=job, folds=folds, training=training, model_of=model_of), options)
    if status.state != "DONE":
        end(status, settings, as_json=as_json, local=options.local)
        return
    name = audit_name(job, 0 if quick else folds)
    found = read_findings(storage, known, name)
    if folder is not None and not is_copy(folder, found):
        check_free(folder, "--out")
        copy_results(storage, name, folder)
    kept = kept_labels(storage, known, found).before
    if as_json:
        typer.echo(json.dumps({**found.model_dump(mode="json"), "kept_before": sorted(kept)}))
        return
    for line in results_text(storage, found, folder, len(kept)):
        out.print(line, soft_wrap=True, highlight=False, markup=False)


def _accept(settings: "ProducerSettings", name: str, accept: str, folds: int, folder: Path | None) -> None:
    """Write a corrected copy of the photos' folder, and say what was changed.

    Raises:
        OptionError: There is no such list or folder.
    """
    from producer.audit.accepted import accepted, as_number, read_findings, without_kept
    from producer.audit.ask import audit_name
    from producer.audit.corrected_copy import check_free, write_corrected
    from producer.audit.decisions import decided
    from producer.audit.kept_before import kept_labels
    from producer.audit.photo_sizes import photos_folder
    from producer.state.stored import load_job
    from producer.terminal.progress import Screen
    from shared.storage import Storage

    if folder is None:
        raise OptionError("--accept needs --out FOLDER, which gets the corrected copy")
    check_free(folder, "--out")
    storage = Storage(settings.store)
    job = load_job(storage, name)
    found = read_findings(storage, job, audit_name(name, folds))
    by_page = accept == ON_THE_PAGE
    chosen, unknown = (decided(storage, found.run, found.findings), []) if by_page else accepted(accept, found)
    if as_number(accept) is not None:
        kept = kept_labels(storage, job, found)
        chosen, left_out = without_kept(accept, chosen, kept.here | kept.before.keys())
        if left_out:
            screen_console.print(left_out, soft_wrap=True)
    dataset = photos_folder(job, settings.data_root)
    for line in unknown:
        command.complain(line)
    with Screen(screen_console) as screen:
        lines = list(write_corrected(job, storage, dataset, chosen, folder, screen.stage))
    for line in lines:
        out.print(line, soft_wrap=True, highlight=False, markup=False)
    unchanged = sum(": not changed" in line for line in lines)
    boxes = counted(len(lines) - unchanged, "box", "boxes")
    screen_console.print(f"{boxes} corrected, {unchanged} not; the copy is {folder}")
    again = command.hint("submit", folder, "--job", "NEW-NAME", *words(job.spec, JobSpec), store=storage)
    screen_console.print(f"`{again}` makes a job of it; shards without a changed photo are reused", soft_wrap=True)
    if unknown:
        raise typer.Exit(EXIT_ERROR)
