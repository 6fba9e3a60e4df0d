"""Which requests are answered, and what a browser may do with the answer: hosts, origins, the access token, headers.

Every site that the user has open can reach a page on this machine. Sites that give our address a domain of theirs (DNS
rebinding) are refused by the Host, forms and scripts of other sites by the Origin, and no site may frame us.
"""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "voc2tflite_page"
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_MOST_QUERY: Final = 4096

_POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' blob:",
    "media-src": "'self' blob:",
    "connect-src": "'self'",
    "worker-src": "'self' blob:",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    # Our own forms need their origin, so it is sent to ourselves, but not to other sites.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}


def policy(changes: Mapping[str, str] | None = None) -> str:
    """The Content-Security-Policy of a page, with other sources for some kinds of content."""
    return "; ".join(f"{kind} {sources}" for kind, sources in (_POLICY | dict(changes or {})).items())


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = (), token: str | None = None) -> None:
        """`names`: hosts that are served besides addresses and localhost. `token`: required in requests if not None."""
        self._app, self._token = app, token
        self._names = frozenset({"localhost", *(name.lower() for name in names)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", policy())
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The refusal to answer with; None if the request is allowed."""
        headers = Headers(scope=scope)
        if scope["method"] not in _METHODS:
            return _refused(405, "only GET, HEAD and POST are answered")
        if not self._is_ours(headers.get("host", "")):
            return _refused(421, "this page answers to addresses, to localhost and to names given by --name")
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{headers['host']}":
            return _refused(403, "a page of another site asked")
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return _refused(403, "a page of another site asked")
        if len(scope["query_string"]) > _MOST_QUERY:
            return _refused(414, "the address is too long")
        return None if self._token is None else self._without_token(scope, headers, self._token)

    def _is_ours(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower() in self._names
        return True

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """None if the cookie has the token; if the address has it, a redirect that moves it into the cookie."""
        if _same(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""), token):
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"))
        if scope["method"] != "GET" or not any(name == "token" and _same(value, token) for name, value in asked):
            return _refused(401, "open the address that `voc2tflite page` printed: it has the token")
        rest = urlencode([(name, value) for name, value in asked if name != "token"])
        # Exactly one slash, because `//host` would be another site.
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, status_code=303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=scope["scheme"] == "https")
        return answer


def _same(found: str, token: str) -> bool:
    return hmac.compare_digest(found.encode(), token.encode())


def _refused(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status)
