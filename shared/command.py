"""`voc2tflite`: one command for all installed packages of this project, and hints that work when copied.

Packages add their commands through entry points of the group `voc2tflite.commands`, so that none imports another;
packages that are not installed are left out. Command modules are light: a command imports what it needs when called.
"""

import errno
import inspect
import os
import re
import shlex
import shutil
import signal
import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from shared import __version__, logs
from shared.errors import Interrupted, OptionError, PipelineError
from shared.text import printable_lines

if TYPE_CHECKING:
    from shared.storage import Storage

PROGRAM: Final = "voc2tflite"
GROUP: Final = "voc2tflite.commands"
# Set by the producer's image: how a person outside the container runs a command in it.
CALLED_AS: Final = "VOC_CALLED_AS"

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

# The system's errors for a full disk and a used-up quota.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def hint(*arguments: object, store: "Storage | None" = None) -> str:
    """A command of this program that works in the terminal it is shown in, quoted for a shell.

    Args:
        arguments: The command and its arguments.
        store: The store that the command is about; `--store` is added if the settings name another one.
    """
    words = [*program(), *(f"./{each}" if _is_like_option(each) else str(each) for each in arguments)]
    if store is not None:
        from shared.settings import CommonSettings  # needs a library of the services, which `predict` does without

        usual = CommonSettings().store
        if store.root not in (usual, str(Path(usual).expanduser().absolute())):
            words += ["--store", shown(Path(store.root)) if store.is_local else store.root]
    return shlex.join(words)


def _is_like_option(argument: object) -> bool:
    """Whether a path would be taken for an option if it were typed unchanged."""
    return isinstance(argument, Path) and str(argument).startswith("-")


def require_local(folder: Path | None, option: str) -> None:
    """Check that a folder to be written is on this machine: `Path` would take a URL for a folder named `s3:`.

    Raises:
        OptionError: It is a URL.
    """
    if folder is not None and re.match("[a-z0-9]{2,}:/", text := str(folder)):  # a Path keeps one of the two slashes
        url = text.replace(":/", "://", 1)
        raise OptionError(f"{option} {url}: expected a folder of this machine, found a URL; make it here and copy it")


def program() -> list[str]:
    """How to call this program: by its name if a shell finds it, otherwise by its path.

    The path is relative if it is below the working folder. Without the script it is Python's, with `-m`.
    """
    if CALLED_AS in os.environ:
        return shlex.split(os.environ[CALLED_AS])
    script = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).resolve() == script.resolve():
        return [PROGRAM]
    return [shown(script)] if script.exists() else [shown(Path(sys.executable)), "-m", "shared.command"]


def shown(path: Path) -> str:
    """`path` for a person: relative if it is below the working folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def start_hint(service: str, queue: str | None = None) -> str:
    """The command that starts a service where this program runs: by Compose or by hand.

    Args:
        service: producer, worker or trainer.
        queue: The queue that its Celery worker reads; None for the producer.
    """
    if CALLED_AS in os.environ:
        return f"docker compose up --detach {service}"
    if queue is None:
        return hint("serve")
    # Celery finds packages only in the working folder.
    root = Path(__file__).resolve().parents[1]
    words = [shown(Path(sys.executable)), "-m", "celery", "-A", f"{service}.app", "worker", "-Q", queue]
    if service == "trainer":
        words += ["--concurrency", "1"]  # Celery's default would train as many runs at once as there are cores
    words += ["--without-mingle", "--without-gossip"]
    return shlex.join([*([] if root == Path.cwd() else ["env", f"PYTHONPATH={root}"]), *words])


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


class Command(TyperCommand):
    """A command whose help shows no type beside a switch: `--yes <bool>` would look as if it needed a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, and --help."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


def _unbroken(text: str) -> str:
    """A docstring with each paragraph on one line: the terminal wraps it to its own width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def whole() -> typer.Typer:
    """The commands of all installed packages, each package in a panel named after its entry point."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        help="From a folder of Pascal-VOC photos to an int8 TFLite detector.",
    )

    @app.callback()
    def root(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        """Only here for `--version`."""

    for point in sorted(entry_points(group=GROUP)):
        if find_spec(point.module.split(".")[0]) is None:
            continue
        module = import_module(point.module)
        if all(find_spec(name) is not None for name in module.NEEDS):
            for part in (module.app, *(group.typer_instance for group in module.app.registered_groups)):
                for command in part.registered_commands:
                    command.rich_help_panel = point.name.capitalize()
                    command.cls, command.help = Command, _unbroken(inspect.getdoc(command.callback) or "")
            app.add_typer(module.app)
    return app


def stop_signals() -> list[signal.Signals]:
    """The signals that stop a command as Ctrl-C does.

    SIGINT and SIGTERM always: a shell script starts its background jobs with SIGINT ignored, and Python would leave it
    ignored. SIGHUP, sent when a terminal is closed, unless it is ignored: that is what `nohup` asks for.
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Windows has none
        signals.append(signal.SIGHUP)
    return signals


def stop_now(_number: int, _frame: FrameType | None) -> NoReturn:
    """The handler of `stop_signals` for commands that may stop at any moment."""
    leave_closed_terminal()
    raise KeyboardInterrupt


def leave_closed_terminal() -> None:
    """Discard further output if the terminal is gone: writing to it would fail in the middle of the clean-up."""
    for output in (1, 2):
        if _is_closed_terminal(output):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


def _is_closed_terminal(descriptor: int) -> bool:
    try:
        os.get_terminal_size(descriptor)
    except OSError as error:
        return error.errno == errno.EIO  # a file or a pipe gives ENOTTY
    return False


def run(app: typer.Typer, prog_name: str | None = None) -> None:
    """Run a command line; an expected error becomes one line on standard error, without a traceback."""
    for number in stop_signals():
        signal.signal(number, stop_now)
    logs.set_up("text", "ERROR")
    if isinstance(sys.stdout, TextIOWrapper):  # cp1252, used by pipes on Windows, lacks letters of many photo names
        sys.stdout.reconfigure(errors="backslashreplace")
    app.pretty_exceptions_enable = False
    try:
        code = app(prog_name=prog_name, standalone_mode=False)
    except typer.Abort:
        unasked = "" if sys.stdin.isatty() else "; --yes goes on without asking"
        typer.echo(f"nothing was done{unasked}", err=True)
        code = EXIT_ERROR
    except Interrupted as stop:
        typer.echo(f"stopped: {stop}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # an unexpected error is raised again
        known = _explained(error)
        if known is None:
            raise
        for text in known[1]:
            complain(text)
        code = known[0]
    if code == EXIT_INTERRUPTED:  # typer turns a KeyboardInterrupt into this code
        typer.echo("stopped; the same command begins again", err=True)
    sys.exit(code)


def _explained(error: Exception) -> tuple[int, list[str]] | None:
    """The exit code and the lines for an error that a person can cause; None for any other one."""
    if isinstance(error, PipelineError):
        return EXIT_USAGE if isinstance(error, OptionError) else EXIT_ERROR, [str(error)]
    if isinstance(error, ModuleNotFoundError):
        return EXIT_ERROR, [f"{error}; this command needs more than is installed: pip install '.[trainer]'"]
    if isinstance(error, OSError) and error.errno == errno.EIO and any(map(_is_closed_terminal, (0, 1, 2))):
        leave_closed_terminal()  # a write to it can fail before SIGHUP arrives
        return EXIT_INTERRUPTED, []
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        # A path that a person gave, or a full disk: a failed write does not know its file's name.
        about = "" if error.filename is None else f"{error.filename}: "
        remedy = "; make room, then do the same again" if error.errno in _FULL else ""
        return EXIT_ERROR, [f"{about}{error.strerror}{remedy}"]
    if hasattr(error, "format_message"):  # typer's own errors, whose class it does not export
        return EXIT_USAGE, [_usage_text(error)]
    if isinstance(error, ValueError):
        from pydantic import ValidationError  # imported only here, so that `--help` starts without it

        if isinstance(error, ValidationError):
            is_settings = error.title.endswith("Settings")
            return EXIT_USAGE, [_fault_text(fault, is_settings=is_settings) for fault in error.errors()]
    return None


def _usage_text(error: Any) -> str:
    """What typer says about a wrong command line, and which command shows the help."""
    context, text = error.ctx, " ".join(error.format_message().replace("Value error, ", "").split())
    if not text:
        sys.exit(EXIT_USAGE)  # no command was typed, and typer has printed the help
    return f"{text.rstrip('.')}; see `{context.command_path} --help`" if context is not None else text


def _fault_text(fault: Any, *, is_settings: bool) -> str:
    """What is wrong with the value of an environment setting or of a field; secrets are not shown."""
    name = ".".join(map(str, fault["loc"])) or "options"
    expected = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    is_secret = name.endswith(("_url", "password"))
    found = "" if is_secret else f" (found {str(fault['input'])[:80]!r})"
    return f"{f'VOC_{name.upper()}' if is_settings else name}: {expected}{found}"


def complain(text: str) -> None:
    """Print an error message on standard error."""
    typer.secho("error: ", fg="red", nl=False, err=True)
    typer.echo(printable_lines(text), err=True)


def main() -> None:
    """Run `voc2tflite`."""
    run(whole(), prog_name=None if Path(sys.argv[0]).name == PROGRAM else Path(sys.argv[0]).name)


if __name__ == "__main__":
    run(whole(), prog_name=" ".join(program()))
