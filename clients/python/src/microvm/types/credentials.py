"""Client credentials.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class CredentialRequest(TypedDict):
    """Body, or a part of it, of `credentials.create`."""

    name: NotRequired[str]
    scope: Literal["account", "namespace", "workspace", "billing"]
    namespace: NotRequired[str]
    workspace_id: NotRequired[str]


class NewCredentialResponse(TypedDict):
    """Answer, or a part of one, of `credentials.create`."""

    credential: CredentialBody
    client_secret: str


class CredentialBody(TypedDict):
    """Answer, or a part of one, of `credentials.create`."""

    id: str
    client_id: str
    name: str
    scope: str
    namespace: str | None
    workspace_id: str | None
    created_at: str
    last_used_at: str | None


class CredentialListResponse(TypedDict):
    """Answer, or a part of one, of `credentials.list`."""

    credentials: list[CredentialBody]
    total: int
    page: int
    limit: int
