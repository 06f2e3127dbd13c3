"""The groups of the OpenAPI document. Each app has those of its routes in `openapi_settings.GROUPS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ApiGroup:
    """A group has the operations whose path `paths` matches, a regular expression; of an app's groups the first one
    counts. Without `text` it adds operations to the group of another app.
    """

    name: str
    text: str
    paths: str
