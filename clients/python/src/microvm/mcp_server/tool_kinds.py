"""How tools are added: what they do to the platform is said to clients, and can be left out."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations

from microvm.mcp_server.failures import tool_errors
from microvm.mcp_server.strict_tools import StrictTool

Result = TypeVar("Result")
Function = Callable[..., Awaitable[Any]]

READ = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
CHANGE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DESTROY = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
# A program may do anything, also outside of its workspace.
RUN = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)


class ToolSet:
    """The tools of a server; with `read_only` only those that change nothing."""

    def __init__(self, *, read_only: bool) -> None:
        self._read_only = read_only
        self.tools: list[Tool] = []

    def add(self, kind: ToolAnnotations, *functions: Function) -> None:
        """Each under the name of its function; what a model reads of it is its docstring."""
        if self._read_only and not kind.read_only_hint:
            return
        for function in functions:
            made = StrictTool.from_function(_with_errors(function), name=function.__name__, annotations=kind)
            self.tools.append(made)


def _with_errors(function: Function) -> Function:
    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        with tool_errors():
            return await function(*args, **kwargs)

    return run
