"""Static pages, their releases and domains.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.domains import (
    CheckDomainRequest,
    ConnectedDomainResponse,
    Domain,
    DomainCheckResponse,
    RenewedCertificateResponse,
)
from microvm.types.pages import (
    CheckSlugRequest,
    CheckSlugResponse,
    ConnectDomainRequest,
    CreatePageRequest,
    DeployedPageResponse,
    DeployPageRequest,
    Page,
    Release,
    RollbackRequest,
    UpdatePageRequest,
)


class AsyncPageRoutes(AsyncGroup):
    """Static pages, their releases and domains."""

    async def list(self) -> builtins.list[Page]:
        """List all pages in the scope of the credential, newest first."""
        answer: builtins.list[Page] = await self._call("GET", "/pages", part="pages")
        return answer

    async def create(self, **body: Unpack[CreatePageRequest]) -> Page:
        """Create a page from a folder in a running workspace, and wait until it is served."""
        answer: Page = await self._call("POST", "/pages", body=body, part="page", timeout=LONG)
        return answer

    async def get(self, page: str) -> Page:
        """Return one page by its slug."""
        answer: Page = await self._call("GET", f"/pages/{quoted(page)}", part="page")
        return answer

    async def update(self, page: str, **body: Unpack[UpdatePageRequest]) -> Page:
        """Change the name or the slug. With a new slug the page is served at its new address at once. The old
        address ends, and others may take it. Idempotent.
        """
        answer: Page = await self._call("PUT", f"/pages/{quoted(page)}", body=body, part="page")
        return answer

    async def delete(self, page: str) -> None:
        """Delete a page with all its releases. A deploy that is under way ends without effect."""
        await self._delete(f"/pages/{quoted(page)}")

    async def deploy(self, page: str, **body: Unpack[DeployPageRequest]) -> DeployedPageResponse:
        """Replace the files by those of a folder in a running workspace, and wait until they are served."""
        answer: DeployedPageResponse = await self._call(
            "POST", f"/pages/{quoted(page)}/deploy", body=body, timeout=LONG
        )
        return answer

    async def enable(self, page: str) -> Page:
        """Serve a disabled page again. Idempotent. A page that the operators of the platform have disabled stays
        disabled.
        """
        answer: Page = await self._call("POST", f"/pages/{quoted(page)}/enable", part="page", again=True)
        return answer

    async def disable(self, page: str) -> Page:
        """Stop serving a page; it keeps its releases and its slug. Idempotent."""
        answer: Page = await self._call("POST", f"/pages/{quoted(page)}/disable", part="page", again=True)
        return answer

    async def releases(self, page: str) -> builtins.list[Release]:
        """List the kept releases, newest first; `live` marks the one that is served."""
        answer: builtins.list[Release] = await self._call("GET", f"/pages/{quoted(page)}/releases", part="releases")
        return answer

    async def rollback(self, page: str, **body: Unpack[RollbackRequest]) -> Page:
        """Serve a kept release, older or newer than the live one. Idempotent."""
        answer: Page = await self._call("POST", f"/pages/{quoted(page)}/rollback", body=body, part="page", again=True)
        return answer

    async def get_domain(self, page: str) -> Domain | None:
        """The connected domain; null if there is none."""
        answer: Domain | None = await self._call("GET", f"/pages/{quoted(page)}/domain", part="domain")
        return answer

    async def connect_domain(self, page: str, **body: Unpack[ConnectDomainRequest]) -> ConnectedDomainResponse:
        """Connect a domain, in place of the one that is connected now. Idempotent."""
        answer: ConnectedDomainResponse = await self._call(
            "POST", f"/pages/{quoted(page)}/domain", body=body, again=True
        )
        return answer

    async def check_domain(self, page: str, **body: Unpack[CheckDomainRequest]) -> DomainCheckResponse:
        """Look up the DNS records of a domain, without any effect. Takes up to some ten seconds if name servers are
        slow. `verified`: it can be connected now.
        """
        answer: DomainCheckResponse = await self._call(
            "POST", f"/pages/{quoted(page)}/domain/check", body=body, again=True
        )
        return answer

    async def disconnect_domain(self, page: str) -> None:
        """Disconnect the domain: it is not served any more, and its certificates are removed."""
        await self._delete(f"/pages/{quoted(page)}/domain")

    async def renew_domain(self, page: str) -> RenewedCertificateResponse:
        """Order new certificates now. The present ones are served until the new ones are there."""
        answer: RenewedCertificateResponse = await self._call("POST", f"/pages/{quoted(page)}/domain/ssl/renew")
        return answer

    async def check_slug(self, **body: Unpack[CheckSlugRequest]) -> CheckSlugResponse:
        """Check whether a page may take a slug. A slug belongs to one page, whatever its domain. A slug that no
        page may have is refused.
        """
        answer: CheckSlugResponse = await self._call("POST", "/domain/check-slug", body=body, again=True)
        return answer
