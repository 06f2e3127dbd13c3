"""Snapshots of all workspaces.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class PatchedChangeRequest(TypedDict):
    """Body, or a part of it, of `snapshots.update`."""

    name: NotRequired[str]
    ttl: NotRequired[str | float | None]
