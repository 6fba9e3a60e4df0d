"""Facts -> HTML by the templates; if a browser has the same page already, it is not sent again."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from producer.page.facts.commands import rooted, rooted_text
from producer.page.guard import policy
from producer.terminal.figures import age, duration, map_text, percent
from shared.text import counted, printable

CHANGES_COOKIE: Final = "voc2tflite_changes"
_TEMPLATES: Final = Path(__file__).parent / "templates"


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (age, counted, duration, map_text, percent, printable):
        made.filters[show.__name__] = show
    made.filters["thousands"] = lambda number: f"{number:,}"
    made.filters["size"] = size_text
    made.filters["coded"] = coded
    return made


def coded(text: str) -> Markup:
    """A text as HTML, with what is between back quotes as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unmatched back quote, probably in a name
        return escape(text)
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def size_text(size_bytes: int) -> str:
    """`1.62 MB`, `12 kB`, `8 B`."""
    for least, unit in ((1e9, "GB"), (1e6, "MB")):
        if size_bytes >= least:
            return f"{size_bytes / least:.2f} {unit}"
    return f"{size_bytes / 1e3:.0f} kB" if size_bytes >= 1e3 else f"{size_bytes} B"


_TEMPLATE: Final = _environment()


def is_allowed(request: Request) -> bool:
    """Whether the request has the token for changes."""
    token: str | None = request.app.state.change_token
    return token is not None and hmac.compare_digest(request.cookies.get(CHANGES_COOKIE, "").encode(), token.encode())


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    sources: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    **facts: Any,
) -> Response:
    """A page; 304 if the browser has exactly these bytes already.

    Args:
        request: The request to answer.
        template: The template's file in `templates/`.
        status: The status of the answer.
        sources: Changes to the Content-Security-Policy.
        headers: Further headers.
        facts: What the template shows. All of it is escaped.
    """
    state = request.app.state
    may_change = is_allowed(request)
    asks = state.change_token is not None and not may_change
    said = state.told.text(request.query_params.get("said"))
    common = {"store": state.storage.root, "may_change": may_change, "asks_for_token": asks, "said": said}
    common |= {"pasted": lambda command: rooted(command, state.storage)}
    common |= {"has_broker": state.settings.broker_url is not None, "back": here(request)}
    html = _TEMPLATE.get_template(template).render(**(common | facts))
    body = html.encode("utf-8", "replace")
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    sent = {"ETag": tag, "Content-Security-Policy": policy(sources), **(headers or {})}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=sent)
    return Response(body, status, sent, "text/html; charset=utf-8")


def here(request: Request) -> str:
    """The address of the present page, without the message on it; for a POST, that of the page with the form."""
    if request.method in ("GET", "HEAD"):
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "said"]
        return local_address(f"{request.url.path}?{urlencode(kept)}" if kept else request.url.path)
    came = urlsplit(request.headers.get("referer", ""))
    is_ours = came.netloc == request.headers.get("host")
    return local_address(urlunsplit(("", "", came.path, came.query, ""))) if is_ours else "/"


def local_address(text: str) -> str:
    """`text` if it is an address on this server; `/` if it could lead to another site."""
    is_local = text.startswith("/") and not text.startswith("//") and "\\" not in text
    return text if is_local and text.isascii() and text.isprintable() else "/"


def problem(request: Request, status: int, title: str, text: str, back: str | None = None) -> Response:
    """A page that says in one line what is wrong, with a link back: to `back`, or to where the request came from."""
    back = here(request) if back is None else back
    back = "/" if request.method in ("GET", "HEAD") else back
    told = rooted_text(text, request.app.state.storage)
    return render(request, "problem.html.j2", status=status, title=title, text=told, back=back)
