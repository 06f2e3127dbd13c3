"""How tools are added: what they do to the platform is said to clients, and can be left out."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from microvm.mcp_server.failures import tool_errors

Result = TypeVar("Result")
Tool = Callable[..., Awaitable[Any]]

READ = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
CHANGE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DESTROY = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
# A program may do anything, also outside of its workspace.
RUN = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)


class ToolSet:
    """Adds tools to a server; with `read_only` only those that change nothing."""

    def __init__(self, server: MCPServer[Any], *, read_only: bool) -> None:
        self._server, self._read_only = server, read_only

    def add(self, kind: ToolAnnotations, *tools: Tool) -> None:
        """Each under the name of its function; what a model reads of it is its docstring."""
        if self._read_only and not kind.read_only_hint:
            return
        for tool in tools:
            self._server.add_tool(_with_errors(tool), name=tool.__name__, annotations=kind)


def _with_errors(tool: Tool) -> Tool:
    @functools.wraps(tool)
    async def run(*args: Any, **kwargs: Any) -> Any:
        with tool_errors():
            return await tool(*args, **kwargs)

    return run
