"""Files of a running workspace. Paths are absolute.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class ListingResponse(TypedDict):
    """Answer, or a part of one, of `files.list`."""

    path: str
    count: int
    entries: list[FileEntry]
    truncated: bool
    next_cursor: str | None


class FileEntry(TypedDict):
    """Answer, or a part of one, of `files.list`."""

    name: str
    path: str
    type: str
    size: int
    mode: int
    modified: str
    target: NotRequired[str]
    encoded_path: NotRequired[str]


class FileContent(TypedDict):
    """Answer, or a part of one, of `files.download`."""

    path: str
    encoding: str
    content: str
    size: int


class FileWrite(TypedDict):
    """Body, or a part of it, of `files.upload`."""

    path: str
    content: str


class FileWritten(TypedDict):
    """Answer, or a part of one, of `files.upload`."""

    path: str
    size: int


class UsageResponse(TypedDict):
    """Answer, or a part of one, of `files.usage`."""

    total_bytes: int
    used_bytes: int
    available_bytes: int
    percent: float


class OverlayResizeRequest(TypedDict):
    """Body, or a part of it, of `files.resize`."""

    size_mb: int


class OverlayResized(TypedDict):
    """Answer, or a part of one, of `files.resize`."""

    accepted: NotRequired[bool]
    size_mb: int
    wasRunning: bool
    relaunched: bool
