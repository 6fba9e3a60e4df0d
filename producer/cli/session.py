"""What the commands of the producer share at their start and end: settings, the ledger if it answers, exit codes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from producer.terminal.console import Terminal
from shared.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from producer.run.intent import StartOptions
    from producer.settings import ProducerSettings
    from producer.state.status import JobStatus
    from shared.leasing.ledger import Ledger
    from shared.storage import DataFolder

screen_console: Final = Terminal(stderr=True)
out: Final = Terminal()

EXIT_ERROR, EXIT_FAILED, EXIT_CANCELLED = 1, 3, 4


def read_settings(store: str | None) -> "ProducerSettings":
    """The settings from the environment, with the store of the command line."""
    from producer.settings import ProducerSettings
    from shared import faults

    settings = ProducerSettings()
    faults.arm(settings.fault)
    return settings.model_copy(update={"store": store}) if store else settings


def with_notify(options: "StartOptions", notify: str | None) -> "StartOptions":
    """`options` with the URL of `--notify`, or of the file that it names.

    Raises:
        OptionError: It is not a URL, it shows a password to everybody on this machine, or nobody here sees the end.
    """
    from dataclasses import replace
    from urllib.parse import urlsplit

    from pydantic import SecretStr

    from producer.settings import http_url

    if notify is None:
        return options
    if not (options.local or options.wait):
        raise OptionError("--notify needs --wait or --local; otherwise `serve` notifies, by VOC_NOTIFY_URL")
    try:
        text = Path(notify[1:]).read_text(encoding="utf-8").strip() if notify.startswith("@") else notify
        url = http_url(SecretStr(text))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise OptionError(f"--notify {notify.split('?')[0]}: {reason}") from error
    if not notify.startswith("@") and "@" in urlsplit(notify).netloc:  # in a path or a query, @ is just a character
        raise OptionError(
            "--notify: found a user or password in the URL, which everybody on this machine can read; write the URL "
            "into a file and use --notify @FILE, or set VOC_NOTIFY_URL"
        )
    return replace(options, settings=options.settings.model_copy(update={"notify_url": url}))


def require_job_of(run: str | None, job: str | None) -> None:
    """Refuse a run without its job, for commands in which the job may be left out.

    Raises:
        OptionError: A run is given, but no job.
    """
    if run is not None and job is None:
        raise OptionError(f"--run {run}: expected the name of its job too")


def reachable_ledger(settings: "ProducerSettings") -> "Ledger | None":
    """The ledger if a broker is configured and answers."""
    from shared.leasing.ledger import Ledger
    from shared.leasing.redis_client import connect

    if settings.broker_url is None:
        return None
    ledger = Ledger(connect(settings.broker()))
    if ledger.is_reachable():
        return ledger
    screen_console.print("Redis cannot be reached: this is what the store says")
    return None


def start_options(
    settings: "ProducerSettings",
    *,
    local: bool,
    wait: bool,
    workers: int,
    confirm: "Callable[[], None] | None" = None,
) -> "StartOptions":
    """How a command runs its job: here if `--local` is typed or no broker is configured; see `StartOptions`."""
    from producer.run.intent import StartOptions

    is_local = local or settings.broker_url is None
    if settings.broker_url is not None:
        settings.broker()  # refuse a URL that is not of Redis before anything is read or printed
    return StartOptions(
        settings=settings,
        local=is_local,
        wait=wait,
        workers=workers,
        console=screen_console,
        is_local_typed=local,
        confirm=confirm,
    )


def go_on() -> None:
    """Ask the person at the terminal whether to go on.

    Raises:
        Abort: The answer is no.
    """
    typer.confirm("Go on?", default=True, abort=True, err=True)


def folder_of(dataset: str, options: "StartOptions") -> "DataFolder":
    """The folder with the photos: `dataset`, or if it is a zip or tar, the folder that it is or was unpacked into.

    Archives are unpacked where the workers see them: into the store, or below the data root of a service. In a bucket,
    only folders are accepted.

    Raises:
        LintError: The archive is of a kind that is not read, damaged, hostile or too large, or cannot be unpacked.
    """
    from producer.dataset.archive import bare_name, is_archive, names_archive, unpacked
    from producer.terminal.progress import Screen
    from shared.errors import LintError
    from shared.storage import BucketFolder, Storage, data_folder

    asked, root = data_folder(dataset), data_folder(options.settings.data_root)
    if isinstance(asked, BucketFolder):
        if names_archive(asked.name):
            raise LintError(f"{asked}: an archive is read from a disk: download it, and unpack it or name the file")
        return asked
    if not is_archive(asked):
        return asked
    if isinstance(root, BucketFolder) and not options.local:
        raise LintError(
            f"{asked}: an archive is unpacked into a folder, and VOC_DATA_ROOT is {root}: unpack it yourself, copy the "
            f"folder there and submit {root / bare_name(asked)}, or use --local"
        )
    remedy = {}
    if isinstance(root, Path) and not options.local:
        folder, remedy = root / ".unpacked", {"remedy": _by_hand(asked, root)}
    else:
        storage = Storage(options.settings.store)
        if not storage.is_local:
            raise LintError(f"{asked}: an archive is unpacked into a store in a local folder: name one by --store")
        folder = storage.local_path("unpacked").absolute()
    with Screen(screen_console) as screen:
        return unpacked(asked, folder, screen.stage, **remedy)


def _by_hand(archive: Path, root: Path) -> str:
    """The command that unpacks an archive below the data root, which Compose mounts read-only, and submits the folder.

    For a container, it is a command to type outside, where the data root is the folder `data`.
    """
    import os
    import shlex
    import zipfile

    from producer.dataset.archive import bare_name
    from shared.command import CALLED_AS, hint

    name = bare_name(archive)
    source, target = archive, root / name
    if CALLED_AS in os.environ:
        inside = archive.is_relative_to(root)
        source, target = Path("data") / (archive.relative_to(root) if inside else archive.name), Path("data", name)
    unzip = ["unzip", "-q", source, "-d", target]
    unpack = unzip if zipfile.is_zipfile(archive) else ["tar", "-xf", source, "-C", target]
    words = [["mkdir", "-p", str(target)], list(map(str, unpack))]
    return f"`{' && '.join(map(shlex.join, words))} && {hint('submit', root / name)}` does it by hand"


def end(status: "JobStatus", settings: "ProducerSettings", *, as_json: bool, local: bool = False) -> None:
    """Print how a job ended, and exit with the matching code; `local`: it ran here."""
    from producer.terminal import job_text
    from shared.storage import Storage

    storage = Storage(settings.store)
    if as_json:
        typer.echo(json.dumps(status.as_json(), indent=2))
    elif status.state == "DONE":
        job_text.print_result(status, storage, out, is_local=local or settings.broker_url is None)
    if status.state == "FAILED" or status.failed:
        screen_console.print(job_text.failure_text(status, storage), soft_wrap=True)
        raise typer.Exit(EXIT_FAILED)
    if status.state == "CANCELLED":
        what = f"run {status.run['run']}" if status.run is not None and " --run " in str(status.next) else status.job
        screen_console.print(f"{what} was cancelled; `{status.next}` goes on with it", soft_wrap=True)
        raise typer.Exit(EXIT_CANCELLED)
