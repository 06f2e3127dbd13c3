"""Uploads by token, as existing clients make them."""

from __future__ import annotations

from typing import Any

import httpx

from tests.callers import Caller
from tests.cdn.uploading import Answer, sent


def token_of(caller: Caller, **terms: Any) -> str:
    made = caller.post("/cdn/token", terms)
    assert made.status_code == 201, made.content
    return str(made.json()["token"])


def form(data: bytes, name: str = "a.txt", field: str = "file", **fields: str) -> tuple[bytes, str]:
    """Body and type as a public client makes them."""
    made = httpx.Request("POST", "http://x", files={field: (name, data)}, data=fields)
    return made.read(), made.headers["content-type"]


def posted(token: str, body: bytes, kind: str, *, size: int = 100_000, announced: bool = True, **more: Any) -> Answer:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    length = len(body) if announced else None
    return sent("POST", "", *pieces, **{"path": "/cdn/api", "length": length, "Authorization": f"Bearer {token}",
                                       "Content_Type": kind} | more)  # fmt: skip


def uploaded(token: str, data: bytes, *args: str, **more: Any) -> Answer:
    return posted(token, *form(data, *args), **more)
