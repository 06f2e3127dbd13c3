"""The only writers of the catalog. Workspaces store a snapshot, so none of this changes a workspace."""

from __future__ import annotations

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from common.saved_rows import delete_unless_deleted, save_unless_deleted
from vmbackend.images.reference import parse_reference
from workspaces.images.models import CatalogEntry

# Columns that are not content of an entry: a change of these alone makes no new revision.
NOT_CONTENT = frozenset({"revision", "created_at", "updated_at", "position", "is_shown"})
LISTS = ("includes", "keywords", "software", "env", "capabilities")
CONTENT = tuple(field.name for field in CatalogEntry._meta.concrete_fields if field.name not in NOT_CONTENT)


@transaction.atomic
def catalog_entry_save(*, entry: CatalogEntry) -> CatalogEntry:
    """Write an entry whose fields were validated (`full_clean`); a change of content is a new revision. Raise NotFound
    (it was deleted since it was read).
    """
    _fill_empty(entry)
    entry.reference = parse_reference(entry.image).tagged
    before = CatalogEntry.objects.select_for_update().filter(pk=entry.pk).first()
    if before is not None:
        changed = any(getattr(before, name) != getattr(entry, name) for name in CONTENT)
        entry.revision = before.revision + changed
    entry.updated_at = timezone.now()
    save_unless_deleted(entry)
    return entry


def _fill_empty(entry: CatalogEntry) -> None:
    """Normalize empty fields: forms give None, and any empty JSON value passes validation."""
    for name in LISTS:
        setattr(entry, name, getattr(entry, name) or [])
    entry.vm_defaults = entry.vm_defaults or {}
    entry.desktop, entry.preset = entry.desktop or None, entry.preset or None


def catalog_entry_delete(*, entry: CatalogEntry) -> None:
    """Remove an entry. Its preset can no longer be used; workspaces created from it are unchanged. Raise NotFound (it
    was deleted since it was read).
    """
    delete_unless_deleted(entry)


def catalog_entries_show(*, entries: QuerySet[CatalogEntry], shown: bool) -> int:
    """List entries, or hide them; returns how many changed."""
    return entries.filter(is_shown=not shown).update(is_shown=shown, updated_at=timezone.now())
