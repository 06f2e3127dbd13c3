"""Terminals in one workspace, with a token of its runtime.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.runtime_terminals import RuntimeTerminal, ScrollbackResponse, TerminalRequest, TerminalResponse


class AsyncRuntimeTerminalRoutes(AsyncGroup):
    """Terminals in one workspace, with a token of its runtime."""

    async def list(self) -> builtins.list[RuntimeTerminal]:
        """Return the terminals of the workspace, those of its sandbox's sockets included."""
        answer: builtins.list[RuntimeTerminal] = await self._call("GET", "/terminals", part="terminals")
        return answer

    async def create(self, **body: Unpack[TerminalRequest]) -> TerminalResponse:
        """Start a program on a terminal of its own. Where there are as many as may be, an ended one makes room."""
        answer: TerminalResponse = await self._call("POST", "/terminals", body=body)
        return answer

    async def remove(self, terminal: str) -> None:
        """Kill a terminal with all of its processes, and forget it. Sockets are told."""
        await self._delete(f"/terminals/{quoted(terminal)}")

    async def scrollback(self, terminal: str, *, bytes: int | None = None) -> ScrollbackResponse:
        """Return the end of a terminal's output as it is now, byte for byte."""
        answer: ScrollbackResponse = await self._call(
            "GET", f"/terminals/{quoted(terminal)}/scrollback", query={"bytes": bytes}
        )
        return answer
