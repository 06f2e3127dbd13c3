"""The address and the tokens of the inside of a workspace; `open` reaches into it.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import TypedDict


class AccessResponse(TypedDict):
    """Answer, or a part of one, of `runtime_access.get`."""

    enabled: bool
    url: str


class EnabledResponse(TypedDict):
    """Answer, or a part of one, of `runtime_access.enable`."""

    token: str
    expires_at: str
    url: str
    enabled: bool


class RuntimeDisabledResponse(TypedDict):
    """Answer, or a part of one, of `runtime_access.disable`."""

    enabled: bool
    message: str


class GatewayTokenFields(TypedDict):
    """Answer, or a part of one, of `runtime_access.token`."""

    token: str
    expires_at: str
    url: str


class RawTokenResponse(TypedDict):
    """Answer, or a part of one, of `runtime_access.raw_token`."""

    token: str
    ip: str
    port: int
    url: str
