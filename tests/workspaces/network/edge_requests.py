"""Authorization requests as the edge sends them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test import Client

from common.edge_header import edge_secret
from workspaces.edge_auth.fast_path import EdgeAuthFastPath

PORT, WAKE = "/internal/edge/port", "/internal/edge/wake"


def heads(name: str, caller: str = "192.0.2.1", secret: str | None = None, **more: str) -> dict[str, str]:
    """The headers of the edge for a public name and a caller, and more."""
    word = edge_secret(settings.SECRET_KEY) if secret is None else secret
    given = {"X-Edge": f"{word} {name} {caller} {word}"}
    return {**given, **{key.replace("_", "-"): value for key, value in more.items()}}


def ask(name: str, path: str = PORT, **more: str) -> Any:
    return Client().get(path, headers=heads(name, **more))


class Inner:
    """Stands for Django behind the fast path."""

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        start_response("404 Not Found", [])
        return [b"inner"]


def through_fast_path(name: str, path: str = PORT, method: str = "GET", **more: str) -> tuple[str, str]:
    """Status and upstream."""
    given = {f"HTTP_{key.upper().replace('-', '_')}": value for key, value in heads(name, **more).items()}
    seen: list[Any] = []
    EdgeAuthFastPath(Inner())({"PATH_INFO": path, "REQUEST_METHOD": method, **given}, lambda *args: seen.append(args))
    ((status, headers),) = seen
    return status[:3], dict(headers).get("X-Upstream", "")
