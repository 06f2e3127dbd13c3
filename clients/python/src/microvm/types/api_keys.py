"""Keys of code assistance.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ApiKeyRequest(TypedDict):
    """Body, or a part of it, of `api_keys.create`."""

    name: NotRequired[str]
    namespace: NotRequired[str]


class NewApiKeyResponse(TypedDict):
    """Answer, or a part of one, of `api_keys.create`."""

    api_key: ApiKeyBody
    key: str
    webhook_secret: str


class ApiKeyBody(TypedDict):
    """Answer, or a part of one, of `api_keys.create`."""

    id: str
    name: str
    key_prefix: str
    namespace: str | None
    created_at: str
    last_used_at: str | None


class ApiKeyListResponse(TypedDict):
    """Answer, or a part of one, of `api_keys.list`."""

    api_keys: list[ApiKeyBody]
    total: int
    page: int
    limit: int
