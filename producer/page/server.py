"""`voc2tflite page`: the application behind uvicorn, on one address until Ctrl-C."""

import ipaddress
import logging
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn

from producer.page.app import make_app
from producer.page.reach import own_certificate, qr_terminal
from producer.settings import ProducerSettings
from shared.errors import OptionError, PipelineError
from shared.storage import Storage

_DEFAULT_PORT: Final = 8765
_TOKEN_BYTES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """How the page is served: `bind` as `address:port`, `names` besides addresses and localhost.

    `tls`: over HTTPS, with a certificate made for it; `certificate` and `key` (files in PEM) are used instead if given.
    """

    bind: str
    names: Sequence[str] = ()
    allow_changes: bool = False
    tls: bool = False
    certificate: Path | None = None
    key: Path | None = None


def serve_page(settings: ProducerSettings, options: PageOptions) -> None:
    """Serve until SIGINT or SIGTERM; print the address to open.

    Raises:
        OptionError: The address is not valid, or changes are allowed in a store that cannot be written.
        PipelineError: The address is taken, or the store cannot be opened.
    """
    host, port = address_of(options.bind)
    if options.allow_changes:
        _check_writable(Storage(settings.store))
    token = None if ipaddress.ip_address(host).is_loopback else secrets.token_urlsafe(_TOKEN_BYTES)
    change_token = secrets.token_urlsafe(_TOKEN_BYTES) if options.allow_changes else None
    app = make_app(settings, names=options.names, token=token, change_token=change_token)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        shown = _shown_host(host, options.names)
        files = stack.enter_context(_tls_files(options, shown))
        place = f"{'https' if files else 'http'}://{shown}:{listener.getsockname()[1]}"
        is_outside = token is not None and shown != "localhost"  # a container's port is published only on this machine
        app.state.outside = place if is_outside else None
        _say(f"{place}/{f'?token={token}' if token else ''}", change_token, is_outside=is_outside)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        certificate, key = files or (None, None)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        with suppress(KeyboardInterrupt):  # uvicorn has ended because of it, and nothing is left to do
            uvicorn.Server(config).run(sockets=[listener])


def _check_writable(storage: Storage) -> None:
    """Check that changes can be written; in Compose, which mounts the store read-only, they cannot.

    Raises:
        OptionError: The store is a folder that this user cannot write to.
    """
    root = storage.local_path("") if storage.is_local else None
    if root is not None and root.exists() and not os.access(root, os.W_OK):
        raise OptionError(f"--allow-changes: {root} is read-only; mount it writable, or leave the option out")


def _say(opened: str, change_token: str | None, *, is_outside: bool) -> None:
    """Print where the page is, at a terminal also as a QR code for a phone."""
    print(f"open {opened}  (Ctrl-C stops it; jobs go on)", flush=True)  # noqa: T201 - it is what the command says
    if is_outside and sys.stdout.isatty():
        print(qr_terminal(opened), flush=True)  # noqa: T201
    if change_token:
        print(f"to make changes, type this token once in each browser: {change_token}", flush=True)  # noqa: T201


@contextmanager
def _tls_files(options: PageOptions, host: str) -> Iterator[tuple[Path, Path] | None]:
    """Certificate and key for HTTPS; None without it.

    Raises:
        OptionError: One of the two files is not named, or they are not a certificate and its key.
        PipelineError: No certificate can be made.
    """
    if options.certificate is None and options.key is None:
        with own_certificate([host.strip("[]"), *options.names]) if options.tls else nullcontext() as made:
            yield made
        return
    if options.certificate is None or options.key is None:
        raise OptionError("--tls-certificate and --tls-key go together: a certificate (PEM) and its key")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
    except OSError as error:
        found = error.strerror or str(error)
        raise OptionError(f"--tls-certificate {options.certificate}, --tls-key {options.key}: {found}") from error
    yield options.certificate, options.key


def address_of(bind: str) -> tuple[str, int]:
    """Address and port of `127.0.0.1:8765`, `[::1]:8765` or `127.0.0.1`.

    Raises:
        OptionError: It is not an address and a port.
    """
    host, separator, port = bind.rpartition(":") if not bind.endswith("]") else (bind, "", "")
    host, port = (host, port) if separator else (bind, str(_DEFAULT_PORT))
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        ipaddress.ip_address(host)
        number = int(port)
        if not 0 <= number <= 65535:
            raise ValueError
    except ValueError as error:
        raise OptionError(f"--bind {bind}: expected an address and a port, such as 127.0.0.1:8765") from error
    return host, number


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address and a port; port 0 takes a free one.

    Raises:
        PipelineError: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)  # Python's own text would repeat the address
        raise PipelineError(f"--bind {host}:{port}: {what}; --bind {host}:0 takes a free port") from error


def _shown_host(host: str, names: Sequence[str]) -> str:
    """The host to open; if it listens on all addresses, a given name or this machine's own address."""
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return names[0] if names else _own_address()
    return f"[{host}]" if address.version == 6 else host


def _own_address() -> str:
    """The address at which others on the network reach this machine. Connecting the UDP socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737), where nobody is
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
