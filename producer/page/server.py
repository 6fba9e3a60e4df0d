"""`voc2tflite page`: the application behind uvicorn, on one address until Ctrl-C."""

import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import uvicorn

from producer.page.app import make_app
from producer.settings import ProducerSettings
from shared.errors import OptionError, PipelineError

_DEFAULT_PORT: Final = 8765
_TOKEN_BYTES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """How the page is served: `bind` as `address:port`, `names` besides addresses and localhost."""

    bind: str
    names: Sequence[str] = ()
    allow_changes: bool = False


def serve_page(settings: ProducerSettings, options: PageOptions) -> None:
    """Serve until SIGINT or SIGTERM; prints the address to open.

    Raises:
        OptionError: The address is none.
        PipelineError: It is taken, or the store cannot be opened.
    """
    host, port = address_of(options.bind)
    token = None if ipaddress.ip_address(host).is_loopback else secrets.token_urlsafe(_TOKEN_BYTES)
    change_token = secrets.token_urlsafe(_TOKEN_BYTES) if options.allow_changes else None
    app = make_app(settings, names=options.names, token=token, change_token=change_token)
    with listen(host, port) as listener:
        opened = f"http://{_shown_host(host)}:{listener.getsockname()[1]}/{f'?token={token}' if token else ''}"
        print(f"open {opened}  (Ctrl-C stops it; jobs go on)", flush=True)  # noqa: T201 - it is what the command says
        if change_token:
            print(f"changes want this token, once a browser: {change_token}", flush=True)  # noqa: T201
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
        with suppress(KeyboardInterrupt):  # uvicorn has ended by it; there is nothing to go on with
            uvicorn.Server(config).run(sockets=[listener])


def address_of(bind: str) -> tuple[str, int]:
    """Address and port of `127.0.0.1:8765`, `[::1]:8765` or `127.0.0.1`.

    Raises:
        OptionError: It is none.
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
    """A socket that listens there; port 0 takes a free one.

    Raises:
        PipelineError: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno else str(error)  # Python's own text has the address in it again
        raise PipelineError(f"--bind {host}:{port}: {what}; --bind {host}:0 takes a free port") from error


def _shown_host(host: str) -> str:
    """The address to open: where all addresses are listened on, this machine's own name for itself."""
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return _own_address()
    return f"[{host}]" if address.version == 6 else host


def _own_address() -> str:
    """The address by which others on the network reach this machine. Nothing is sent: the socket is only connected."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of the addresses for documentation (RFC 5737): there is nobody
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
