"""Headers after the body of a response, which ASGI's servers do not send by themselves (config/request_protocol.py)."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest

# In the scope: a list of the trailers of the response, which the server sends with its end.
TRAILERS = "common.trailers"


def add_trailers(request: HttpRequest, trailers: Sequence[tuple[bytes, bytes]]) -> None:
    """Add trailers to the response of a request. A server or a client that takes none gets none."""
    getattr(request, "scope", {}).get(TRAILERS, []).extend(trailers)
