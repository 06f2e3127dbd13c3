"""The catalog of images.

Written by `make client`.
"""

from __future__ import annotations

from typing import Literal

from microvm.aio.group import AsyncGroup
from microvm.types.images import CatalogResponse


class AsyncImageRoutes(AsyncGroup):
    """The catalog of images."""

    async def list(
        self,
        *,
        category: Literal["all", "os", "devtools", "runtime", "ai", "browser", "database", "infra"] | None = None,
        search: str | None = None,
    ) -> CatalogResponse:
        """List the curated images. Create also accepts any public image reference that is not listed."""
        answer: CatalogResponse = await self._call(
            "GET", "/workspace/images", query={"category": category, "search": search}
        )
        return answer
