"""The command that serves the page."""

from pathlib import Path
from typing import Annotated, Final

import typer

from producer.cli.common_options import StoreOption
from producer.cli.session import read_settings
from shared.errors import PipelineError

app = typer.Typer()

# The libraries that the page needs; an installation for the command line only does not have them.
_LIBRARIES: Final = frozenset({"jinja2", "multipart", "segno", "starlette", "uvicorn"})


@app.command()
def page(
    store: StoreOption = None,
    bind: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT", help="Where to listen. If other machines can reach it, the page asks for a token."
        ),
    ] = "127.0.0.1:8765",
    name: Annotated[
        list[str] | None, typer.Option(help="A host name under which the page is reached; may be given several times.")
    ] = None,
    *,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Use HTTPS, without which phones open no camera, with a certificate made for it."),
    ] = False,
    tls_certificate: Annotated[Path | None, typer.Option(help="A certificate of your own for HTTPS (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of --tls-certificate (PEM).")] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the page cancel, retry, remove, submit and audit.")
    ] = False,
) -> None:
    """Show jobs, findings, runs and models in a browser. Without --allow-changes it only reads: stop it any time.

    Example: [bold]voc2tflite page --store out[/bold]

    For a phone: [bold]voc2tflite page --store out --bind 0.0.0.0 --tls[/bold]
    """
    try:
        from producer.page.server import PageOptions, serve_page
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        raise PipelineError(f"{error}; the page needs more than is installed: pip install '.[page]'") from error
    options = PageOptions(
        bind=bind, names=name or (), allow_changes=allow_changes, tls=tls, certificate=tls_certificate, key=tls_key
    )
    serve_page(read_settings(store), options)
