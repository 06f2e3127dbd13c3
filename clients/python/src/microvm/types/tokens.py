"""Access tokens.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class TokenRequest(TypedDict):
    """Body, or a part of it, of `tokens.create`."""

    scope: Literal["account", "namespace", "workspace"]
    namespace: NotRequired[str]
    workspaceId: NotRequired[str]
    ttl: NotRequired[int]
    label: NotRequired[str]


class TokenResponse(TypedDict):
    """Answer, or a part of one, of `tokens.create`."""

    token: str
    expiresAt: str
    scope: str
    ttl: int
