"""Static pages, their releases and domains.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import LONG, Group
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


class PageRoutes(Group):
    """Static pages, their releases and domains."""

    def list(self) -> builtins.list[Page]:
        """All pages in the scope of the credential, newest first."""
        answer: builtins.list[Page] = self._call("GET", "/pages", part="pages")
        return answer

    def create(self, **body: Unpack[CreatePageRequest]) -> Page:
        """Create a page from a folder in a running workspace, and wait until it is served."""
        answer: Page = self._call("POST", "/pages", body=body, part="page", timeout=LONG)
        return answer

    def get(self, page: str) -> Page:
        """One page by its slug."""
        answer: Page = self._call("GET", f"/pages/{quoted(page)}", part="page")
        return answer

    def update(self, page: str, **body: Unpack[UpdatePageRequest]) -> Page:
        """Change the name or the slug. With a new slug the page is served by its new address at once, and no more
        by the old one, which others may take then. Idempotent.
        """
        answer: Page = self._call("PUT", f"/pages/{quoted(page)}", body=body, part="page")
        return answer

    def delete(self, page: str) -> None:
        """Delete a page with all its releases. A deploy that is under way ends without effect."""
        self._delete(f"/pages/{quoted(page)}")

    def deploy(self, page: str, **body: Unpack[DeployPageRequest]) -> DeployedPageResponse:
        """Replace the files by those of a folder in a running workspace, and wait until they are served."""
        answer: DeployedPageResponse = self._call("POST", f"/pages/{quoted(page)}/deploy", body=body, timeout=LONG)
        return answer

    def enable(self, page: str) -> Page:
        """Serve a disabled page again. Idempotent. One that the operators of the platform have disabled stays so."""
        answer: Page = self._call("POST", f"/pages/{quoted(page)}/enable", part="page", again=True)
        return answer

    def disable(self, page: str) -> Page:
        """Stop serving a page; it keeps its releases and its slug. Idempotent."""
        answer: Page = self._call("POST", f"/pages/{quoted(page)}/disable", part="page", again=True)
        return answer

    def releases(self, page: str) -> builtins.list[Release]:
        """The releases that are kept, newest first; `live` is the one that is served."""
        answer: builtins.list[Release] = self._call("GET", f"/pages/{quoted(page)}/releases", part="releases")
        return answer

    def rollback(self, page: str, **body: Unpack[RollbackRequest]) -> Page:
        """Serve a release that is kept, older or newer than the live one. Idempotent."""
        answer: Page = self._call("POST", f"/pages/{quoted(page)}/rollback", body=body, part="page", again=True)
        return answer

    def get_domain(self, page: str) -> Domain | None:
        """The connected domain; null where there is none."""
        answer: Domain | None = self._call("GET", f"/pages/{quoted(page)}/domain", part="domain")
        return answer

    def connect_domain(self, page: str, **body: Unpack[ConnectDomainRequest]) -> ConnectedDomainResponse:
        """Connect a domain, in place of the one that is connected now. Idempotent."""
        answer: ConnectedDomainResponse = self._call("POST", f"/pages/{quoted(page)}/domain", body=body, again=True)
        return answer

    def check_domain(self, page: str, **body: Unpack[CheckDomainRequest]) -> DomainCheckResponse:
        """Look up the DNS records of a domain, without any effect. Takes up to some ten seconds where name servers
        are slow. `verified`: it can be connected now.
        """
        answer: DomainCheckResponse = self._call("POST", f"/pages/{quoted(page)}/domain/check", body=body, again=True)
        return answer

    def disconnect_domain(self, page: str) -> None:
        """Disconnect the domain: it is not served any more, and its certificates are removed."""
        self._delete(f"/pages/{quoted(page)}/domain")

    def renew_domain(self, page: str) -> RenewedCertificateResponse:
        """Order new certificates now. The present ones are served until the new ones are there."""
        answer: RenewedCertificateResponse = self._call("POST", f"/pages/{quoted(page)}/domain/ssl/renew")
        return answer

    def check_slug(self, **body: Unpack[CheckSlugRequest]) -> CheckSlugResponse:
        """Whether a page may take a slug, which belongs to one page, whatever its domain. A slug that no page may
        have is refused.
        """
        answer: CheckSlugResponse = self._call("POST", "/domain/check-slug", body=body, again=True)
        return answer
