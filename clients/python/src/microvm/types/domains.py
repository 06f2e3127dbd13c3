"""The custom domain of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class DomainResponse(TypedDict):
    """Answer, or a part of one, of `domains.get`."""

    domain: Domain | None


class Domain(TypedDict):
    """Answer, or a part of one, of `domains.get`."""

    domain: str
    domain_ascii: str
    include_www: bool
    port: NotRequired[int]
    verified: bool
    ssl: Ssl
    url: str


class Ssl(TypedDict):
    """Answer, or a part of one, of `domains.get`."""

    status: str
    expiresAt: str | None
    error: str | None


class ConnectPortDomainRequest(TypedDict):
    """Body, or a part of it, of `domains.connect`."""

    domain: str
    include_www: NotRequired[bool]
    includeWww: NotRequired[bool]
    port: int


class ConnectedDomainResponse(TypedDict):
    """Answer, or a part of one, of `domains.connect`."""

    domain: str
    domain_ascii: str
    ssl: Ssl
    url: str


class CheckDomainRequest(TypedDict):
    """Body, or a part of it, of `domains.check`."""

    domain: str
    include_www: NotRequired[bool]
    includeWww: NotRequired[bool]


class DomainCheckResponse(TypedDict):
    """Answer, or a part of one, of `domains.check`."""

    domain: str
    verified: bool
    cname: Cname
    ownership: Ownership
    errors: list[str]


class Cname(TypedDict):
    """Answer, or a part of one, of `domains.check`."""

    expected: str
    actual: str | None
    ok: bool


class Ownership(TypedDict):
    """Answer, or a part of one, of `domains.check`."""

    host: str
    expected: str
    found: str | None
    ok: bool


class RenewedCertificateResponse(TypedDict):
    """Answer, or a part of one, of `domains.renew`."""

    domain: str
    domain_ascii: str
    ssl: Ssl
