"""What the commands have in common: the store, TensorFlow without its messages, checked values."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shared.errors import OptionError, PipelineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.storage import Storage
    from trainer.settings import TrainerSettings

# If only LiteRT is installed (the extra `predict`), commands that need more are hidden.
NEEDS_MORE: Final = find_spec("tensorflow") is None

Store = Annotated[
    str | None,
    typer.Option(help="Where jobs and runs are kept: a folder or s3://, gs://, az:// (VOC_STORE; default: out)."),
]


def check_known(option: str, typed: "Sequence[str] | None", known: "Sequence[str]") -> None:
    """Refuse unknown values of an option that may be given more than once, for which typer has no choices."""
    for value in typed or ():
        if value not in known:
            raise OptionError(f"{option} {value}: expected one of {', '.join(known)}")


def storage_with(run: str, store: str | None) -> "Storage":
    """The store (default: that of the settings) that holds `run`; checked before TensorFlow's 15 s of imports."""
    from shared.jobs.identity import read_request
    from shared.jobs.paths import RunPaths
    from shared.settings import CommonSettings
    from shared.storage import Storage

    storage = Storage(store or CommonSettings().store)
    if not storage.exists(RunPaths(run).request):
        names = ", ".join(storage.list_names("runs")) or "none"
        raise PipelineError(f"{storage.root} holds no run {run!r} (there are: {names})")
    asked = read_request(storage, run)
    if asked is not None and not asked.has_model:
        raise PipelineError(f"run {run!r} belongs to an audit and has no model")
    return storage


def start_tensorflow() -> "TrainerSettings":
    """Import TensorFlow, with as many threads as the settings say; returns the settings."""
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    quiet_tensorflow()
    from trainer.run import use_threads

    use_threads(settings.threads)
    return settings


def quiet_tensorflow() -> None:
    """Import TensorFlow without its messages, which would bury the figures or the gate's verdict.

    No log level silences those of oneDNN, so standard error is discarded meanwhile; a failed import still raises.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow  # noqa: F401
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
