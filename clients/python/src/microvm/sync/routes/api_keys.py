"""Keys of code assistance.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.api_keys import ApiKeyBody, ApiKeyRequest, NewApiKeyResponse


class ApiKeyRoutes(Group):
    """Keys of code assistance."""

    def create(self, **body: Unpack[ApiKeyRequest]) -> NewApiKeyResponse:
        """Create a key. `key` and `webhook_secret` are in this response only."""
        answer: NewApiKeyResponse = self._call("POST", "/api-keys", body=body)
        return answer

    def list(self, *, page_size: int = 100) -> Iterator[ApiKeyBody]:
        """The keys that the credential reaches, newest first, without their secrets."""
        return self._pages("/api-keys", "api_keys", {}, page_size)

    def delete(self, api_key: str) -> None:
        """Delete a key: the next request with it is refused. Calls that are under way are finished."""
        self._delete(f"/api-keys/{quoted(api_key)}")
