"""Files of a running workspace. Paths are absolute.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import LONG, Group
from microvm.types.files import FileEntry, OverlayResized, OverlayResizeRequest, UsageResponse


class FileRoutes(Group):
    """Files of a running workspace. Paths are absolute."""

    def list(self, workspace: str, *, path: str | None = None, page_size: int = 1000) -> Iterator[FileEntry]:
        """A directory's entries by name, at most `limit` of them, and of those with long paths about 4 MiB."""
        return self._cursors(f"/workspace/{quoted(workspace)}/overlay", "entries", {"path": path}, page_size)

    def usage(self, workspace: str) -> UsageResponse:
        """The writable disk, which holds what was changed since the image. The image itself takes none of it."""
        answer: UsageResponse = self._call("GET", f"/workspace/{quoted(workspace)}/overlay/usage")
        return answer

    def resize(self, workspace: str, **body: Unpack[OverlayResizeRequest]) -> OverlayResized:
        """Grow the writable disk now: a running workspace is stopped, resized and relaunched."""
        answer: OverlayResized = self._call(
            "PUT", f"/workspace/{quoted(workspace)}/overlay/resize", body=body, timeout=LONG
        )
        return answer

    def sync(self, workspace: str) -> None:
        """Flush the guest's unwritten data to its disk. Responds when it is written."""
        self._call("POST", f"/workspace/{quoted(workspace)}/overlay/sync", timeout=LONG, again=True)
