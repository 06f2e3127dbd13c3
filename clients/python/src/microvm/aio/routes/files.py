"""Files of a running workspace. Paths are absolute.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.files import FileEntry, OverlayResized, OverlayResizeRequest, UsageResponse


class AsyncFileRoutes(AsyncGroup):
    """Files of a running workspace. Paths are absolute."""

    def list(self, workspace: str, *, path: str | None = None, page_size: int = 1000) -> AsyncIterator[FileEntry]:
        """List a directory's entries by name, at most `limit` of them; of entries with long paths about 4 MiB."""
        return self._cursors(f"/workspace/{quoted(workspace)}/overlay", "entries", {"path": path}, page_size)

    async def usage(self, workspace: str) -> UsageResponse:
        """Return the use of the writable disk, which holds all changes since the image. The image itself takes none
        of it.
        """
        answer: UsageResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/overlay/usage")
        return answer

    async def resize(self, workspace: str, **body: Unpack[OverlayResizeRequest]) -> OverlayResized:
        """Grow the writable disk now: a running workspace is stopped, resized and relaunched."""
        answer: OverlayResized = await self._call(
            "PUT", f"/workspace/{quoted(workspace)}/overlay/resize", body=body, timeout=LONG
        )
        return answer

    async def sync(self, workspace: str) -> None:
        """Flush the guest's unwritten data to its disk. Responds when it is written."""
        await self._call("POST", f"/workspace/{quoted(workspace)}/overlay/sync", timeout=LONG, again=True)
