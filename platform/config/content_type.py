"""The Content-Type of a request without its parameters, but for a form's boundary, before Django reads it.

Bodies and queries are UTF-8. Django would take the encoding of the query from `charset`, among them codecs that are no
encodings of text (`base64`), and fails on such a request before any of its handlers of errors.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from common.sent_heads import SENT_HEADERS

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_BOUNDARY = re.compile(r"""; *boundary=("?)([0-9A-Za-z'()+_,./:=? -]{1,70})\1""", re.IGNORECASE)
_NAME = b"content-type"


def plain_content_type(value: str) -> str:
    """Return the media type, with the boundary of a form."""
    kind, boundary = value.partition(";")[0].strip(), _BOUNDARY.search(value)
    return f'{kind}; boundary="{boundary[2].strip()}"' if boundary else kind


def plain_wsgi(application: WSGIApplication) -> WSGIApplication:
    """Return WSGI middleware."""

    def served(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if "CONTENT_TYPE" in environ:
            environ["CONTENT_TYPE"] = plain_content_type(environ["CONTENT_TYPE"])
        return application(environ, start_response)

    return served


def plain_asgi(application: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return ASGI middleware."""

    async def served(scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = [(name, _plain(value) if name == _NAME else value) for name, value in scope.get("headers", [])]
        sent = {SENT_HEADERS: scope.get("headers", [])}
        await application({**scope, **sent, "headers": headers}, receive, send)

    return served


def _plain(value: bytes) -> bytes:
    return plain_content_type(value.decode("latin-1")).encode("latin-1")
