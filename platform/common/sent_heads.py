"""The head of a request as its client has sent it, for a view that passes it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from django.http import HttpRequest

# In the scope: the headers before they were changed for Django.
SENT_HEADERS = "common.sent_headers"


class SentHead(NamedTuple):
    """Headers, path and query, byte for byte."""

    headers: Sequence[tuple[bytes, bytes]]
    path: bytes
    query: bytes


def sent_head(request: HttpRequest) -> SentHead:
    """Return the head of a request; under WSGI, which has none, one of the same meaning."""
    scope = getattr(request, "scope", None)
    if scope is not None:
        path = scope.get("raw_path") or quote(scope["path"]).encode()
        return SentHead(scope.get(SENT_HEADERS, scope["headers"]), path, scope.get("query_string", b""))
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items() if value]
    return SentHead(headers, quote(request.path).encode(), request.META.get("QUERY_STRING", "").encode("latin-1"))
