"""Fields of requests that have two spellings: either is read, and errors name the one that was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers as s

SPELLINGS = ("workspace_id", "workspaceId")


class WorkspaceIdRequest(s.Serializer[Any]):
    """The base of requests with a field `workspace_id` or `workspaceId`, whichever is declared."""

    def to_internal_value(self, data: Any) -> Any:
        declared, other = SPELLINGS if SPELLINGS[0] in self.fields else SPELLINGS[::-1]
        if not isinstance(data, Mapping) or other not in data:
            return super().to_internal_value(data)
        if declared in data and data[declared] != data[other]:
            raise s.ValidationError({other: [f"`{declared}` has another value; send one of the two."]})
        try:
            return super().to_internal_value({**dict(data.items()), declared: data[other]})
        except s.ValidationError as exc:
            found: Any = exc.detail  # by field, as of every serializer of an object
            raise s.ValidationError(
                {other if name == declared else name: said for name, said in found.items()}
            ) from exc
