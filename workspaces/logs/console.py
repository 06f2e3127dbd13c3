"""A console's log, asked of the host that writes it. The log is bounded, so an answer is too."""

from __future__ import annotations

import json
from typing import Any

from common.errors import NotFound
from workspaces.host_rpc import call
from workspaces.models import Workspace

TASK = "workspaces.tasks.answer_boot_log"
NAMES = ("boot.log", "boot.log.1")


def console_tail(workspace: Workspace, lines: int) -> bytes:
    """The end of the console log with at least that many lines, where there are so many. Raises VMUnavailable."""
    return _ask(workspace, "tail", lines)


def console_files(workspace: Workspace) -> list[dict[str, Any]]:
    """Its files: name, size in bytes, when it was written to (seconds since the epoch). Raises VMUnavailable."""
    listed: list[dict[str, Any]] = json.loads(_ask(workspace, "files", 0) or b"[]")
    return listed


def console_file(workspace: Workspace, name: str) -> bytes:
    """One of the files whole. Raises NotFound, VMUnavailable."""
    found = _ask(workspace, "read", NAMES.index(name))
    if not found:
        raise NotFound("There is no such log file.")
    return found[1:]


def clear_console(workspace: Workspace) -> None:
    """Empty the console log. Raises VMUnavailable."""
    _ask(workspace, "clear", 0)


def _ask(workspace: Workspace, what: str, argument: int) -> bytes:
    return call(workspace, TASK, what, argument) if workspace.host is not None else b""
