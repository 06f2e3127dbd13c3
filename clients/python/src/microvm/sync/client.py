"""The client: one connection pool, one credential, the routes in groups."""

from __future__ import annotations

from typing import Any, Self

import httpx

from microvm.retries import Retries
from microvm.sync.transport import Transport
from microvm.sync.workspaces import Workspaces


class Microvm:
    """`timeout` in seconds. `http` replaces the connection pool, with a `base_url` of its own; `close` closes it."""

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str,
        client_secret: str,
        timeout: float = 30,
        retries: Retries | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        credentials = {"X-Client-ID": client_id, "X-Client-Secret": client_secret}
        pool = http or httpx.Client(base_url=base_url, timeout=timeout)
        self._transport = Transport(pool, credentials, retries or Retries())
        self.workspaces = Workspaces(self._transport)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
