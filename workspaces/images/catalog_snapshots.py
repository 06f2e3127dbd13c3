"""The pin: a workspace's own copy of the catalog entry that it was made from.

A JSON object on the row, so that whatever becomes of the entry changes nothing of the workspace. Beside it stands the
digest of the image, from the first pull on. Null: the image was in no catalog.
"""

from __future__ import annotations

from typing import Any, TypedDict

from django.conf import settings

from vmbackend.driver import Workload, WorkloadRestart
from workspaces.images.models import CatalogEntry

DESKTOP = "desktop"  # the capability, and the workload that provides it


class CatalogSnapshot(TypedDict):
    """`preset` is null where the entry was found by its image: then it describes, and sets nothing."""

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


def offers_desktop(pin: CatalogSnapshot | None) -> bool:
    return bool(pin and pin["desktop"] and pin["desktop"]["installable"] and DESKTOP in pin["capabilities"])


def default_env(pin: CatalogSnapshot | None) -> dict[str, str]:
    """What a preset sets where the workspace's own environment does not."""
    if pin is None or pin["preset"] is None:
        return {}
    return {item["key"]: item["default"] for item in pin["env"] if item.get("default") is not None}


def desktop_workload(pin: CatalogSnapshot | None) -> Workload | None:
    """The program that provides the desktop, where one has to be started."""
    desktop = pin["desktop"] if pin and offers_desktop(pin) else None
    if not desktop or not desktop.get("cmd"):
        return None
    return Workload(name=DESKTOP, cmd=tuple(desktop["cmd"]), restart=WorkloadRestart.ALWAYS)


def logo_url(logo: str) -> str | None:
    """A file under /static/ as an address; other addresses as they stand."""
    if not logo or logo.startswith("https://"):
        return logo or None
    return f"{settings.BASE_URL}{settings.STATIC_URL}{logo}"
