"""Quotas, policy and files of the CDN.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.cdn import (
    CdnFile,
    CdnNamespace,
    CdnNamespaceQuota,
    CdnPolicy,
    CdnPurgedResponse,
    CdnQuota,
    CdnStats,
    CdnUsage,
    NamespaceQuotaRequest,
    QuotaRequest,
    UploadTokenRequest,
    UploadTokenResponse,
    UserTokenResponse,
)


class CdnRoutes(Group):
    """Quotas, policy and files of the CDN."""

    def quota_defaults(self) -> CdnQuota:
        """The template as it was set; null: the plan's."""
        answer: CdnQuota = self._call("GET", "/cdn/quota-defaults", part="data")
        return answer

    def set_quota_defaults(self, **body: Unpack[QuotaRequest]) -> CdnQuota:
        """Change the template. What is left out stays, also inside of `policy`; null inherits the plan's, and for
        `policy` removes all fields; zero is a real zero. A value above the plan's is kept and has the plan's
        effect.
        """
        answer: CdnQuota = self._call("PUT", "/cdn/quota-defaults", body=body, part="data")
        return answer

    def namespaces(self, *, search: str | None = None, page_size: int = 100) -> Iterator[CdnNamespace]:
        """The account's namespaces, or the one that the credential is bound to, newest first, and the template."""
        return self._pages("/cdn/namespaces", "data.namespaces", {"search": search}, page_size)

    def set_quota(self, **body: Unpack[NamespaceQuotaRequest]) -> CdnNamespaceQuota:
        """Change the limits of a namespace. What is left out stays, also inside of `policy`; null inherits the
        template's; zero is a real zero. Limits narrow the account's, whose pool is shared and never grows by
        them.
        """
        answer: CdnNamespaceQuota = self._call("PUT", "/cdn/namespaces/quota", body=body, part="data")
        return answer

    def policy(self, *, namespace: str | None = None) -> CdnPolicy:
        """The limits that hold for a namespace, or for files without one, and where each comes from."""
        answer: CdnPolicy = self._call("GET", "/cdn/policy", query={"namespace": namespace}, part="data")
        return answer

    def usage(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> CdnUsage:
        """Counters of a namespace, of files without one (`scope=personal`), or of the whole account."""
        answer: CdnUsage = self._call("GET", "/cdn/usage", query={"namespace": namespace, "scope": scope}, part="data")
        return answer

    def create_upload(self, **body: Unpack[UploadTokenRequest]) -> UploadTokenResponse | UserTokenResponse:
        """A permit for one upload: its bytes, with an upper bound for variants, are reserved, and its credits held."""
        answer: UploadTokenResponse | UserTokenResponse = self._call("POST", "/cdn/token", body=body)
        return answer

    def tags(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> list[str]:
        """The tags of files that are neither rejected nor in the trash, each once, of the account or a part of it."""
        answer: list[str] = self._call(
            "GET", "/cdn/tags", query={"namespace": namespace, "scope": scope}, part="data.tags"
        )
        return answer

    def stats(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> CdnStats:
        """How many files there are, and their bytes, of the account or a part of it."""
        answer: CdnStats = self._call("GET", "/cdn/stats", query={"namespace": namespace, "scope": scope}, part="data")
        return answer

    def files(
        self,
        *,
        namespace: str | None = None,
        scope: Literal["personal"] | None = None,
        status: Literal["uploading", "processing", "active", "rejected", "trashed"] | None = None,
        tag: str | None = None,
        page_size: int = 100,
    ) -> Iterator[CdnFile]:
        """Newest first; without a status all but those of the trash. A credential of a namespace lists that; one of
        the account all files, those of `namespace`, or with `scope=personal` those without a namespace.
        """
        return self._pages(
            "/cdn/files",
            "data.files",
            {"namespace": namespace, "scope": scope, "status": status, "tag": tag},
            page_size,
        )

    def file(self, file: str) -> CdnFile:
        """One file. Rejected ones are kept for a day (a setting), with the reason."""
        answer: CdnFile = self._call("GET", f"/cdn/files/{quoted(file)}", part="file")
        return answer

    def delete_file(self, file: str) -> None:
        """Move a file to the trash, or cancel its upload. From the next request on it is not delivered. Idempotent."""
        self._delete(f"/cdn/files/{quoted(file)}")

    def restore_file(self, file: str) -> CdnFile:
        """Take a file out of the trash: it is delivered at its former address. Idempotent."""
        answer: CdnFile = self._call("POST", f"/cdn/files/{quoted(file)}/restore", part="file", again=True)
        return answer

    def empty_trash(
        self, *, namespace: str | None = None, scope: Literal["personal"] | None = None
    ) -> CdnPurgedResponse:
        """Delete what is in the trash of the namespace, of files without one (`scope=personal`), or of the account."""
        answer: CdnPurgedResponse = self._call("DELETE", "/cdn/trash", query={"namespace": namespace, "scope": scope})
        return answer
