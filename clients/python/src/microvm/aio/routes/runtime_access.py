"""The address and the tokens of the inside of a workspace; `open` reaches into it.

Written by `make client`.
"""

from __future__ import annotations

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.runtime_access import (
    AccessResponse,
    EnabledResponse,
    GatewayTokenFields,
    RawTokenResponse,
    RuntimeDisabledResponse,
)


class AsyncRuntimeAccessRoutes(AsyncGroup):
    """The address and the tokens of the inside of a workspace; `open` reaches into it."""

    async def get(self, workspace: str) -> AccessResponse:
        """Return whether it is enabled, and its address."""
        answer: AccessResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/runtime-api-access")
        return answer

    async def enable(self, workspace: str) -> EnabledResponse:
        """Enable it and return a token. Idempotent: earlier tokens stay valid."""
        answer: EnabledResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/runtime-api-access/enable", again=True
        )
        return answer

    async def disable(self, workspace: str) -> RuntimeDisabledResponse:
        """Disable it. Idempotent. All of its tokens end, and within a second what they have opened."""
        answer: RuntimeDisabledResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/runtime-api-access/disable", again=True
        )
        return answer

    async def token(self, workspace: str) -> GatewayTokenFields:
        """Return a token that is valid for an hour. Changes nothing."""
        answer: GatewayTokenFields = await self._call("GET", f"/workspace/{quoted(workspace)}/runtime-api-access/token")
        return answer

    async def rotate(self, workspace: str) -> GatewayTokenFields:
        """End every token that was given out, of both kinds, and return another one."""
        answer: GatewayTokenFields = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/runtime-api-access/token"
        )
        return answer

    async def raw_token(self, workspace: str) -> RawTokenResponse:
        """Return a token without an end of its own, and where the address answers."""
        answer: RawTokenResponse = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/runtime-api-access/token/raw"
        )
        return answer
