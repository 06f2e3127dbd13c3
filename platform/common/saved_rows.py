"""Saving and deleting a row that staff have read before."""

from __future__ import annotations

from django.db import DatabaseError
from django.db.models import Model

from common.database_errors import is_update_of_nothing
from common.errors import NotFound


def save_unless_deleted(row: Model) -> None:
    """Insert a new row, or update a stored one. Raises NotFound where that was deleted since it was read: by itself,
    `save` would insert it again.
    """
    try:
        row.save(force_update=not row._state.adding)
    except DatabaseError as exc:
        if not is_update_of_nothing(exc):
            raise
        raise NotFound(f"This {row._meta.verbose_name} was deleted.") from None


def delete_unless_deleted(row: Model) -> None:
    """Delete a stored row. Raises NotFound where another request has deleted it since it was read, so that only one of
    two is recorded as the deletion.
    """
    label = row._meta.label
    if not row.delete()[1].get(label):
        raise NotFound(f"This {row._meta.verbose_name} was deleted.")
