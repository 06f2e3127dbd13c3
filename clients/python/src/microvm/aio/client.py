"""The client: one connection pool, one credential, the routes in groups."""

from __future__ import annotations

from typing import Any, Self

import httpx

from microvm.aio.transport import AsyncTransport
from microvm.aio.workspaces import AsyncWorkspaces
from microvm.retries import Retries


class AsyncMicrovm:
    """`timeout` in seconds. `http` replaces the connection pool, with a `base_url` of its own; `close` closes it."""

    def __init__(
        self,
        base_url: str,
        *,
        client_id: str,
        client_secret: str,
        timeout: float = 30,
        retries: Retries | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        credentials = {"X-Client-ID": client_id, "X-Client-Secret": client_secret}
        pool = http or httpx.AsyncClient(base_url=base_url, timeout=timeout)
        self._transport = AsyncTransport(pool, credentials, retries or Retries())
        self.workspaces = AsyncWorkspaces(self._transport)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
