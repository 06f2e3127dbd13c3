"""Terminals in one workspace, with a token of its runtime.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class TerminalsResponse(TypedDict):
    """Answer, or a part of one, of `runtime_terminals.list`."""

    terminals: list[RuntimeTerminal]


class RuntimeTerminal(TypedDict):
    """Answer, or a part of one, of `runtime_terminals.list`."""

    id: str
    command: list[str]
    cols: int
    rows: int
    alive: bool
    exit_code: int | None
    created_at: str
    scrollback_size: int


class TerminalRequest(TypedDict):
    """Body, or a part of it, of `runtime_terminals.create`."""

    cmd: NotRequired[list[str]]
    cols: NotRequired[int]
    rows: NotRequired[int]
    scrollback_size: NotRequired[int]


class TerminalResponse(TypedDict):
    """Answer, or a part of one, of `runtime_terminals.create`."""

    id: str
    command: list[str]
    cols: int
    rows: int
    alive: bool
    exit_code: int | None
    created_at: str
    scrollback_size: int


class TerminalRemovedResponse(TypedDict):
    """Answer, or a part of one, of `runtime_terminals.remove`."""

    terminal_id: str


class ScrollbackResponse(TypedDict):
    """Answer, or a part of one, of `runtime_terminals.scrollback`."""

    scrollback: str
    size: int
    scrollback_size: int
    max_scrollback_size: int
    alive: bool
    exit_code: int | None
