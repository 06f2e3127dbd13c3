"""Saving and deleting a row that staff have read before."""

from __future__ import annotations

from django.db import DatabaseError, IntegrityError
from django.db.models import Model

from common.database_errors import is_duplicate, is_update_of_nothing
from common.errors import Conflict, NotFound


def save_unless_deleted(row: Model) -> None:
    """Insert a new row, or update a stored one. Raise NotFound if that was deleted since it was read, Conflict
    if another request has inserted the new one: by itself, `save` would insert the former again, and replace the
    latter.
    """
    adding = row._state.adding
    try:
        row.save(force_insert=adding, force_update=not adding)
    except IntegrityError as exc:
        if not (adding and is_duplicate(exc)):
            raise
        raise Conflict(f"A {row._meta.verbose_name} like this exists already.") from None
    except DatabaseError as exc:
        if not is_update_of_nothing(exc):
            raise
        raise NotFound(f"This {row._meta.verbose_name} was deleted.") from None


def delete_unless_deleted(row: Model) -> None:
    """Delete a stored row. Raise NotFound if another request has deleted it since it was read, so that only one of
    two is recorded as the deletion.
    """
    label = row._meta.label
    if not row.delete()[1].get(label):
        raise NotFound(f"This {row._meta.verbose_name} was deleted.")
