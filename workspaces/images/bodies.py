"""Catalog entries as responses show them (specification, Image catalog entry)."""

from __future__ import annotations

from typing import Any

from workspaces.images import catalog_snapshots
from workspaces.images.models import CatalogEntry, Category
from workspaces.images.selectors import EVERY_CATEGORY


def entry_body(entry: CatalogEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        "label": entry.label,
        "desc": entry.desc,
        "category": entry.category,
        "image": entry.image,
        "base_os": catalog_snapshots.base_os(entry),
        "logo": catalog_snapshots.logo_url(entry.logo),
        "color": entry.color or None,
        "recommended": entry.recommended,
        "includes": entry.includes,
        "env": [env_body(item) for item in entry.env],
        "preset": entry.preset,
        "base_image": entry.base_image or None,
        "revision": entry.revision,
        "software": [{"name": item["name"], "version": item.get("version", "")} for item in entry.software],
        "vm_defaults": entry.vm_defaults,
        "capabilities": entry.capabilities,
        "desktop": desktop_body(entry.desktop),
    }


def env_body(item: dict[str, Any]) -> dict[str, Any]:
    body = {"key": item["key"], "desc": item["desc"], "required": item.get("required", False)}
    return {**body, "default": item["default"]} if item.get("default") is not None else body


def desktop_body(desktop: dict[str, Any] | None) -> dict[str, Any] | None:
    if desktop is None:
        return None
    sizes = {name: desktop.get(name, {}) for name in ("vm_defaults", "minimum_resources")}
    return {**(catalog_snapshots.desktop_fields(desktop) or {}), **sizes}


def categories_body() -> list[dict[str, str]]:
    every = {"id": EVERY_CATEGORY, "label": "All"}
    return [every, *({"id": category.value, "label": category.label} for category in Category)]
