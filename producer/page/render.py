"""How the page's parts ask for HTML."""

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response


class Render(Protocol):
    """Makes a page of a template."""

    def __call__(self, request: Request, template: str, facts: Mapping[str, Any], status: int = 200, /) -> Response:
        """The page."""
