"""The token of a workspace's runtime, renewed before it ends."""

from __future__ import annotations

from time import monotonic

from microvm.addresses import quoted
from microvm.aio.transport import AsyncTransport
from microvm.aio.waiting import Lock
from microvm.credentials import bearer_header
from microvm.retries import Sending

# A token lives for an hour; one that is asked for in time ends on no way.
KEPT_SECONDS = 3300.0


class AsyncRuntimeAuth:
    """The first token is given; others are asked for with the account's own credential, by one of many callers."""

    def __init__(self, account: AsyncTransport, workspace: str, token: str) -> None:
        self._sending = Sending("GET", f"/workspace/{quoted(workspace)}/runtime-api-access/token")
        self._account = account
        self._lock = Lock()
        self._token = token
        self._renewal = monotonic() + KEPT_SECONDS

    async def headers(self) -> dict[str, str]:
        async with self._lock:
            if not self._token or monotonic() >= self._renewal:
                begun = monotonic()
                self._token = str((await self._account.call(self._sending))["token"])
                self._renewal = begun + KEPT_SECONDS
            return bearer_header(self._token)

    def is_renewable(self, refused: dict[str, str]) -> bool:
        if self._token and refused == bearer_header(self._token):
            self._token = ""
        return True
