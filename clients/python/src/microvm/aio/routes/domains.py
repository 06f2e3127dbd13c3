"""The custom domain of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.domains import (
    CheckDomainRequest,
    ConnectedDomainResponse,
    ConnectPortDomainRequest,
    Domain,
    DomainCheckResponse,
    RenewedCertificateResponse,
)


class AsyncDomainRoutes(AsyncGroup):
    """The custom domain of a workspace."""

    async def get(self, workspace: str) -> Domain | None:
        """The connected domain; null if there is none."""
        answer: Domain | None = await self._call("GET", f"/workspace/{quoted(workspace)}/domain", part="domain")
        return answer

    async def connect(self, workspace: str, **body: Unpack[ConnectPortDomainRequest]) -> ConnectedDomainResponse:
        """Connect a domain, in place of the one that is connected now. Idempotent."""
        answer: ConnectedDomainResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/domain", body=body, again=True
        )
        return answer

    async def check(self, workspace: str, **body: Unpack[CheckDomainRequest]) -> DomainCheckResponse:
        """Look up the DNS records of a domain, without any effect. Takes up to some ten seconds if name servers are
        slow. `verified`: it can be connected now.
        """
        answer: DomainCheckResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/domain/check", body=body, again=True
        )
        return answer

    async def disconnect(self, workspace: str) -> None:
        """Disconnect the domain: it is not served any more, and its certificates are removed."""
        await self._delete(f"/workspace/{quoted(workspace)}/domain")

    async def renew(self, workspace: str) -> RenewedCertificateResponse:
        """Order new certificates now. The present ones are served until the new ones are there."""
        answer: RenewedCertificateResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/domain/ssl/renew"
        )
        return answer
