"""Keys of code assistance.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.api_keys import ApiKeyBody, ApiKeyRequest, NewApiKeyResponse


class AsyncApiKeyRoutes(AsyncGroup):
    """Keys of code assistance."""

    async def create(self, **body: Unpack[ApiKeyRequest]) -> NewApiKeyResponse:
        """Create a key. `key` and `webhook_secret` are in this response only."""
        answer: NewApiKeyResponse = await self._call("POST", "/api-keys", body=body)
        return answer

    def list(self, *, page_size: int = 100) -> AsyncIterator[ApiKeyBody]:
        """List the keys that the credential reaches, newest first, without their secrets."""
        return self._pages("/api-keys", "api_keys", {}, page_size)

    async def delete(self, api_key: str) -> None:
        """Delete a key: the next request with it is refused. Calls that have begun are finished."""
        await self._delete(f"/api-keys/{quoted(api_key)}")
