"""Catalog snapshots: a workspace's own copy of the catalog entry that it was created from.

A JSON object on the row, so that later changes of the entry do not change the workspace. The digest of the image is
stored beside it by the first pull. Null: the image was not in the catalog.
"""

from __future__ import annotations

from typing import Any, TypedDict

from django.conf import settings

from vmbackend.driver import Workload, WorkloadRestart
from workspaces.images.models import CatalogEntry

DESKTOP = "desktop"  # the capability, and the workload that provides it


class CatalogSnapshot(TypedDict):
    """Snapshot. `preset` is null if the entry was found by its image: then it sets no defaults."""

    entry: str
    preset: str | None
    revision: int
    image: str
    base_os: dict[str, str]
    logo: str
    color: str
    vm_defaults: dict[str, Any]
    capabilities: list[str]
    env: list[dict[str, Any]]
    desktop: dict[str, Any] | None


def snapshot_of(entry: CatalogEntry, *, by_preset: bool) -> CatalogSnapshot:
    return CatalogSnapshot(
        entry=entry.pk,
        preset=entry.preset if by_preset else None,
        revision=entry.revision,
        image=entry.image,
        base_os=base_os(entry),
        logo=entry.logo,
        color=entry.color,
        vm_defaults=entry.vm_defaults,
        capabilities=entry.capabilities,
        env=entry.env,
        desktop=entry.desktop,
    )


def base_os(entry: CatalogEntry) -> dict[str, str]:
    return {"family": entry.os_family, "distribution": entry.os_distribution, "version": entry.os_version}


def offers_desktop(snapshot: CatalogSnapshot | None) -> bool:
    return bool(
        snapshot and snapshot["desktop"] and snapshot["desktop"]["installable"] and DESKTOP in snapshot["capabilities"]
    )


def default_env(snapshot: CatalogSnapshot | None) -> dict[str, str]:
    """Return the preset's variables with a default."""
    if snapshot is None or snapshot["preset"] is None:
        return {}
    return {item["key"]: item["default"] for item in snapshot["env"] if item.get("default") is not None}


def desktop_workload(snapshot: CatalogSnapshot | None) -> Workload | None:
    """Return the program that provides the desktop, if one must be started."""
    desktop = snapshot["desktop"] if snapshot and offers_desktop(snapshot) else None
    if not desktop or not desktop.get("cmd"):
        return None
    return Workload(name=DESKTOP, cmd=tuple(desktop["cmd"]), restart=WorkloadRestart.ALWAYS)


def logo_url(logo: str) -> str | None:
    """Return the URL of a file under /static/. Other URLs are returned unchanged."""
    if not logo or logo.startswith("https://"):
        return logo or None
    return f"{settings.BASE_URL}{settings.STATIC_URL}{logo}"
