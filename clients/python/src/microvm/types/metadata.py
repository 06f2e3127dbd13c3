"""Keys and values that are stored with a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class MetadataResponse(TypedDict):
    """Answer, or a part of one, of `metadata.get`."""

    metadata: dict[str, Any]


class MetadataRequest(TypedDict):
    """Body, or a part of it, of `metadata.update`."""

    metadata: dict[str, Any]


class PatchedMetadataRequest(TypedDict):
    """Body, or a part of it, of `metadata.patch`."""

    metadata: NotRequired[dict[str, Any]]
