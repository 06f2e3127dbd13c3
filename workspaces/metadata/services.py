"""Changing a workspace's metadata."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from django.utils import timezone

from common.errors import ValidationError
from common.json_objects import is_deeper
from workspaces import rows
from workspaces.models import Workspace

MAX_BYTES = 64 * 1024
# Far above real use, far below the recursion limits of JSON parsers and serializers.
MAX_DEPTH = 100


@transaction.atomic
def metadata_merge(*, workspace: Workspace, changes: dict[str, Any]) -> dict[str, Any]:
    """Overwrite and add top-level keys; a null is stored. Returns the whole object.

    The row is locked until the commit, so that concurrent merges are all applied. Raises
    ValidationError (nested too deeply, or more than 64 KiB as compact JSON), NotFound (deleted concurrently). Nothing
    has changed then.
    """
    require_shallow(changes)
    merged = {**rows.lock_column(workspace, "metadata"), **changes}
    require_small(merged)
    rows.update_row(workspace, metadata=merged, updated_at=timezone.now())
    return merged


def require_shallow(value: Any) -> None:
    """Raises ValidationError."""
    if is_deeper(value, MAX_DEPTH):
        raise ValidationError(details={"metadata": [f"At most {MAX_DEPTH} levels of nesting."]})


def require_small(metadata: dict[str, Any]) -> None:
    """Raises ValidationError."""
    size = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_BYTES:
        raise ValidationError(details={"metadata": [f"At most {MAX_BYTES} bytes as JSON; it would be {size}."]})
