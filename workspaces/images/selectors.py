"""Reading the catalog. It is curated and small: one query reads it whole."""

from __future__ import annotations

from typing import NamedTuple

from vmbackend.images.reference import Reference
from workspaces.images.models import CatalogEntry, Category

EVERY_CATEGORY = "all"


def shown_entries(*, search: str = "", category: str = EVERY_CATEGORY) -> list[CatalogEntry]:
    """Return the entries that contain every word of `search`, in the order of the catalog.

    The search runs here and not in the database, which would search JSON text, including brackets and escapes.
    """
    found = CatalogEntry.objects.filter(is_shown=True)
    if category != EVERY_CATEGORY:
        found = found.filter(category=category)
    words = search.casefold().split()
    return [entry for entry in found if _has(entry, words)]


def _has(entry: CatalogEntry, words: list[str]) -> bool:
    if not words:
        return True
    software = [item["name"] for item in entry.software]
    texts = [entry.pk, entry.label, entry.desc, entry.image, *entry.includes, *software, *entry.keywords]
    text = "\n".join(texts).casefold()
    return all(word in text for word in words)


class ListedCategory(NamedTuple):
    """One value of the catalog's filter by category."""

    id: str
    label: str


def shown_categories() -> list[ListedCategory]:
    """Return the values of the filter, in the order in which they are shown."""
    every = ListedCategory(EVERY_CATEGORY, "All")
    return [every, *(ListedCategory(category.value, category.label) for category in Category)]


def by_preset(preset: str) -> CatalogEntry | None:
    return CatalogEntry.objects.filter(preset=preset, is_shown=True).first()


def by_image(reference: Reference) -> CatalogEntry | None:
    """Return the entry of this image, by name and tag; one without a preset before one with it."""
    found = CatalogEntry.objects.filter(reference=reference.tagged, is_shown=True)
    return min(found, key=lambda entry: (entry.preset is not None, entry.position, entry.pk), default=None)


def by_name(name: str) -> CatalogEntry | None:
    """Return an entry by id, else by preset, also a hidden one. For staff."""
    return CatalogEntry.objects.filter(pk=name).first() or CatalogEntry.objects.filter(preset=name).first()
