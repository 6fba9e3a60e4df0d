"""What every command of the producer begins and ends with: settings, the ledger if it answers, the exit code."""

import json
from typing import Final

import typer
from rich.console import Console

from producer import texts
from producer.launch import Launch
from producer.settings import ProducerSettings
from producer.state import JobStatus
from shared import faults
from shared.ledger import Ledger, connect
from shared.storage import Storage

screen_console: Final = Console(stderr=True)
out: Final = Console()

EXIT_ERROR, EXIT_USAGE, EXIT_FAILED, EXIT_CANCELLED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


def read_settings(store: str | None) -> ProducerSettings:
    """The settings from the environment, with the store of the command line."""
    settings = ProducerSettings()
    faults.arm(settings.fault)
    return settings.model_copy(update={"store": store}) if store else settings


def reachable_ledger(settings: ProducerSettings) -> Ledger | None:
    """The ledger if a broker is configured and answers."""
    if settings.broker_url is None:
        return None
    ledger = Ledger(connect(settings.broker()))
    if ledger.is_reachable():
        return ledger
    screen_console.print("Redis cannot be reached: this is what storage says")
    return None


def how_to(settings: ProducerSettings, *, local: bool, wait: bool, workers: int) -> Launch:
    """How to do a request: here if asked, or if no broker is configured."""
    is_local = local or settings.broker_url is None
    return Launch(settings=settings, local=is_local, wait=wait, workers=workers, console=screen_console)


def end(status: JobStatus, settings: ProducerSettings, *, as_json: bool) -> None:
    """Print how a job ended, and exit with the code that says so."""
    storage = Storage(settings.store)
    if as_json:
        typer.echo(json.dumps(status.as_json(), indent=2))
    elif status.state == "DONE":
        texts.print_result(status, storage, out)
    if status.state == "FAILED" or status.failed:
        screen_console.print(texts.failure_text(status), highlight=False, soft_wrap=True)
        raise typer.Exit(EXIT_FAILED)
    if status.state == "CANCELLED":
        screen_console.print(f"{status.job} was cancelled; `producer retry {status.job}` goes on with it")
        raise typer.Exit(EXIT_CANCELLED)
