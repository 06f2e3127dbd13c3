"""Credentials of a client."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class ClientCredential:
    """Id and secret of a client. Its text has no secret. Raises ValueError for what no header can carry."""

    client_id: str
    client_secret: str

    def __post_init__(self) -> None:
        require_header_value("client id", self.client_id)
        require_header_value("client secret", self.client_secret)

    def headers(self) -> dict[str, str]:
        return {"X-Client-ID": self.client_id, "X-Client-Secret": self.client_secret}

    def __repr__(self) -> str:
        return f"ClientCredential({self.client_id!r})"


@dataclass(frozen=True)
class AccessTokens:
    """Have requests sent with access tokens instead of the secret: of this scope, each for `ttl` seconds (60-3600)."""

    scope: Literal["account", "namespace", "workspace"] = "account"
    namespace: str | None = None
    workspace_id: str | None = None
    ttl: int = 900
    label: str | None = None

    def body(self) -> dict[str, Any]:
        named = {"namespace": self.namespace, "workspaceId": self.workspace_id, "label": self.label}
        return {"scope": self.scope, "ttl": self.ttl} | {name: value for name, value in named.items() if value}


def bearer_header(token: str) -> dict[str, str]:
    """The header that carries a token. Raises ValueError for what no header can carry."""
    require_header_value("token", token)
    return {"Authorization": f"Bearer {token}"}


def require_header_value(name: str, value: str) -> None:
    """Raises ValueError, whose text does not have the value: the HTTP library's own error would show it."""
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"The {name} has a space, a line break or another character that no credential has.")
