"""Watchers of folders in one workspace, with a token of its runtime.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class WatchersResponse(TypedDict):
    """Answer, or a part of one, of `runtime_watchers.list`."""

    watchers: list[Watcher]


class Watcher(TypedDict):
    """Answer, or a part of one, of `runtime_watchers.list`."""

    id: str
    root: str
    dir_count: int
    excludes: list[str]
    active: bool


class WatcherRequest(TypedDict):
    """Body, or a part of it, of `runtime_watchers.create`."""

    path: NotRequired[str | dict[str, Any]]
    root: NotRequired[str | dict[str, Any]]
    excludes: NotRequired[list[str]]
    exclude: NotRequired[list[str]]


class WatcherResponse(TypedDict):
    """Answer, or a part of one, of `runtime_watchers.create`."""

    watcher: Watcher


class WatcherRemovedResponse(TypedDict):
    """Answer, or a part of one, of `runtime_watchers.remove`."""

    watcher_id: str
