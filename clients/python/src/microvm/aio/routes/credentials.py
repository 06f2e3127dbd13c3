"""Client credentials.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.credentials import CredentialBody, CredentialRequest, NewCredentialResponse


class AsyncCredentialRoutes(AsyncGroup):
    """Client credentials."""

    async def create(self, **body: Unpack[CredentialRequest]) -> NewCredentialResponse:
        """Create a credential of the given `scope`. The secret is returned in this response only."""
        answer: NewCredentialResponse = await self._call("POST", "/credentials", body=body)
        return answer

    def list(self, *, page_size: int = 100) -> AsyncIterator[CredentialBody]:
        """The account's credentials, newest first, without their secrets."""
        return self._pages("/credentials", "credentials", {}, page_size)

    async def rotate(self, credential: str) -> NewCredentialResponse:
        """Replace the secret; the old one and its tokens are revoked immediately."""
        answer: NewCredentialResponse = await self._call("POST", f"/credentials/{quoted(credential)}/rotate")
        return answer

    async def delete(self, credential: str) -> None:
        """Delete a credential; it and its tokens are revoked immediately."""
        await self._delete(f"/credentials/{quoted(credential)}")
