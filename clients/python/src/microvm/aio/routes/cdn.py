"""Quotas, policy and files of the CDN.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
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


class AsyncCdnRoutes(AsyncGroup):
    """Quotas, policy and files of the CDN."""

    async def quota_defaults(self) -> CdnQuota:
        """Return the account's template of limits, as it was set. Null means the plan's limit."""
        answer: CdnQuota = await self._call("GET", "/cdn/quota-defaults", part="data")
        return answer

    async def set_quota_defaults(self, **body: Unpack[QuotaRequest]) -> CdnQuota:
        """Change the account's template of limits. Fields that are left out do not change, also inside of `policy`.
        Null inherits the plan's limit; `policy` null removes all its fields. Zero means zero. A value above the
        plan's is kept, and the plan's value applies.
        """
        answer: CdnQuota = await self._call("PUT", "/cdn/quota-defaults", body=body, part="data")
        return answer

    def namespaces(self, *, search: str | None = None, page_size: int = 100) -> AsyncIterator[CdnNamespace]:
        """List the account's namespaces, or the credential's own, newest first, with the template."""
        return self._pages("/cdn/namespaces", "data.namespaces", {"search": search}, page_size)

    async def set_quota(self, **body: Unpack[NamespaceQuotaRequest]) -> CdnNamespaceQuota:
        """Change the limits of a namespace. Fields that are left out do not change, also inside of `policy`. Null
        inherits the template's limit. Zero means zero. Limits of a namespace narrow those of the account; the
        account's shared pool never grows by them.
        """
        answer: CdnNamespaceQuota = await self._call("PUT", "/cdn/namespaces/quota", body=body, part="data")
        return answer

    async def policy(self, *, namespace: str | None = None) -> CdnPolicy:
        """Return the limits in force for a namespace, or for files without one, and where each comes from."""
        answer: CdnPolicy = await self._call("GET", "/cdn/policy", query={"namespace": namespace}, part="data")
        return answer

    async def usage(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> CdnUsage:
        """Return counters of bytes and files of a namespace, of files without one (`scope=personal`), or of the
        account.
        """
        answer: CdnUsage = await self._call(
            "GET", "/cdn/usage", query={"namespace": namespace, "scope": scope}, part="data"
        )
        return answer

    async def create_upload(self, **body: Unpack[UploadTokenRequest]) -> UploadTokenResponse | UserTokenResponse:
        """Create a permit for one upload: its bytes, with an upper bound for variants, are reserved, and its
        credits held.
        """
        answer: UploadTokenResponse | UserTokenResponse = await self._call("POST", "/cdn/token", body=body)
        return answer

    async def tags(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> list[str]:
        """List the tags of files that are neither rejected nor in the trash, each once, of the account or a part of
        it.
        """
        answer: list[str] = await self._call(
            "GET", "/cdn/tags", query={"namespace": namespace, "scope": scope}, part="data.tags"
        )
        return answer

    async def stats(self, *, namespace: str | None = None, scope: Literal["personal"] | None = None) -> CdnStats:
        """Return the number of files and their bytes, of the account or a part of it."""
        answer: CdnStats = await self._call(
            "GET", "/cdn/stats", query={"namespace": namespace, "scope": scope}, part="data"
        )
        return answer

    def files(
        self,
        *,
        namespace: str | None = None,
        scope: Literal["personal"] | None = None,
        status: Literal["uploading", "processing", "active", "rejected", "trashed"] | None = None,
        tag: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[CdnFile]:
        """List files, newest first; without a status, all that are not in the trash. A credential of a namespace
        lists the files of that namespace. A credential of the account lists all files, the files of `namespace`,
        or with `scope=personal` the files without a namespace.
        """
        return self._pages(
            "/cdn/files",
            "data.files",
            {"namespace": namespace, "scope": scope, "status": status, "tag": tag},
            page_size,
        )

    async def file(self, file: str) -> CdnFile:
        """Return one file. Rejected files are kept for a day (a setting), with the reason."""
        answer: CdnFile = await self._call("GET", f"/cdn/files/{quoted(file)}", part="file")
        return answer

    async def delete_file(self, file: str) -> None:
        """Move a file to the trash, or cancel its upload. From the next request on it is not delivered. Idempotent."""
        await self._delete(f"/cdn/files/{quoted(file)}")

    async def restore_file(self, file: str) -> CdnFile:
        """Take a file out of the trash: it is delivered at its former address again. Idempotent."""
        answer: CdnFile = await self._call("POST", f"/cdn/files/{quoted(file)}/restore", part="file", again=True)
        return answer

    async def empty_trash(
        self, *, namespace: str | None = None, scope: Literal["personal"] | None = None
    ) -> CdnPurgedResponse:
        """Delete the files in the trash of the namespace, of files without one (`scope=personal`), or of the
        account.
        """
        answer: CdnPurgedResponse = await self._call(
            "DELETE", "/cdn/trash", query={"namespace": namespace, "scope": scope}
        )
        return answer
