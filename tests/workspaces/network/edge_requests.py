"""Authorization requests as the edge sends them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test import Client

from edge.secret import edge_secret
from workspaces.edge_auth.fast_path import EdgeAuthFastPath

PORT, WAKE = "/internal/edge/port", "/internal/edge/wake"


def heads(name: str, **more: str) -> dict[str, str]:
    given = {"X-Edge-Secret": edge_secret(settings.SECRET_KEY), "X-Edge-Host": name, "X-Forwarded-For": "192.0.2.1"}
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
