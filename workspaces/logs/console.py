"""A console's log, requested from the host that writes it. The log is bounded, so a reply is too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from common.errors import NotFound
from workspaces.host_rpc import acall
from workspaces.models import Workspace

TASK = "workspaces.tasks.answer_boot_log"
NAMES = ("boot.log", "boot.log.1")


@dataclass(frozen=True, slots=True)
class Console:
    """Console log of one workspace. `queue` is its host's; None without a host, and so without a log.

    Each method raises VMUnavailable if the host does not answer.
    """

    workspace_id: str
    queue: str | None
    host: str

    @classmethod
    def of(cls, workspace: Workspace) -> Console:
        """Return the console of a workspace. This may read the host's row."""
        return cls(workspace.pk, None if workspace.host is None else workspace.host.queue, workspace.host_id or "")

    async def tail(self, lines: int) -> bytes:
        """Return the end of the log with at least that many lines, if it has so many."""
        return await self._call("tail", lines)

    async def files(self) -> list[dict[str, Any]]:
        """Return the log's files: `name`, `size` in bytes, `modified` in seconds since the epoch."""
        listed: list[dict[str, Any]] = json.loads(await self._call("files", 0) or b"[]")
        return listed

    async def read(self, name: str) -> bytes:
        """Return one of the files, complete. Raise NotFound."""
        found = await self._call("read", NAMES.index(name))
        if not found:
            raise NotFound("There is no such log file.")
        return found[1:]

    async def clear(self) -> None:
        """Empty the log."""
        await self._call("clear", 0)

    async def _call(self, what: str, argument: int) -> bytes:
        return b"" if self.queue is None else await acall(self.queue, TASK, self.workspace_id, what, argument)
