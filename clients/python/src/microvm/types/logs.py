"""Logs of a workspace: `boot` (the console), `cmd` (the main program) and those of its workloads.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import TypedDict


class LogsResponse(TypedDict):
    """Answer, or a part of one, of `logs.list`."""

    source: str
    logs: list[LogEntry]


class LogEntry(TypedDict):
    """Answer, or a part of one, of `logs.list`."""

    line: str
    message: str
    timestamp: str | None
    stream: str
    source: str


class LogFilesResponse(TypedDict):
    """Answer, or a part of one, of `logs.files`."""

    files: list[LogFile]
    complete: bool


class LogFile(TypedDict):
    """Answer, or a part of one, of `logs.files`."""

    name: str
    size: int
    modified: str


class LogFileResponse(TypedDict):
    """Answer, or a part of one, of `logs.file`."""

    name: str
    size: int
    content: str
    truncated: bool
