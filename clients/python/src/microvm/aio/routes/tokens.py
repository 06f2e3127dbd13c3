"""Access tokens.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.aio.group import AsyncGroup
from microvm.types.tokens import TokenRequest, TokenResponse


class AsyncTokenRoutes(AsyncGroup):
    """Access tokens."""

    async def create(self, **body: Unpack[TokenRequest]) -> TokenResponse:
        """Issue an access token whose scope is within the scope of the credential."""
        answer: TokenResponse = await self._call("POST", "/tokens", body=body)
        return answer
