"""The image of a create request, and its catalog entry.

Runs in the transaction of the creation, after the lookup of the idempotency key: a repeated request returns the
workspace that the first one created, even if the catalog has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import ValidationError
from vmbackend.images.reference import parse_reference
from workspaces import errors
from workspaces.images import catalog_snapshots, selectors, shapes
from workspaces.images.catalog_snapshots import CatalogSnapshot
from workspaces.images.models import CatalogEntry, Family

# Sizes for a request that names neither sizes nor a preset (specification, Workspace create config object).
DEFAULT_SIZES = {"cpu_millis": 1000, "memory_mb": 512, "disk_size_mb": 512}
SHOWN = {"cpu_millis": "cpus", "memory_mb": "memory_mb", "disk_size_mb": "disk_size_mb"}


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen image. `image` is the reference to pull; `snapshot` is stored on the row, None if the image is not in the
    catalog.
    """

    image: str
    snapshot: CatalogSnapshot | None


def choose_image(*, image: str | None, preset: str | None, default: str) -> Choice:
    """Return the entry of a preset, else of an image (`default` if neither is given).

    Raise ValidationError (no such preset; an image that is not its base), InvalidConfig (no host runs the family).
    """
    if preset is None:
        reference = image or default
        entry = selectors.by_image(parse_reference(reference))
    else:
        entry = selectors.by_preset(preset)
        if entry is None:
            raise ValidationError(details={"preset": [f"There is no preset {preset}."]})
        _require_base(entry, image)
        reference = entry.image
    if entry is None:
        return Choice(reference, None)
    if entry.os_family == Family.MACOS:
        raise errors.InvalidConfig(details={"image": ["No host runs images of family macos."]})
    return Choice(reference, catalog_snapshots.snapshot_of(entry, by_preset=preset is not None))


def _require_base(entry: CatalogEntry, image: str | None) -> None:
    bases = [base for base in (entry.base_image, entry.image) if base]
    if image is not None and str(parse_reference(image)) not in {str(parse_reference(base)) for base in bases}:
        message = f"The preset {entry.preset} is based on {bases[0]}; leave the image out, or give that one."
        raise ValidationError(details={"image": [message]})


def require_env(snapshot: CatalogSnapshot | None, env: Mapping[str, str]) -> None:
    """Raise MissingRequiredEnv with every key that the entry requires and `env` lacks."""
    missing = [
        item["key"] for item in (snapshot["env"] if snapshot else []) if item.get("required") and item["key"] not in env
    ]
    if missing:
        raise errors.MissingRequiredEnv(
            f"The image needs these in config.env: {', '.join(missing)}.", details={"missing": missing}
        )


def chosen_sizes(snapshot: CatalogSnapshot | None, requested: Mapping[str, int], *, desktop: bool) -> dict[str, int]:
    """Return the columns of resources: those requested, else those of the preset, else the defaults.

    With a desktop: at least what it needs. Raise InvalidConfig if less was requested.
    """
    chosen = {**DEFAULT_SIZES, **_of_preset(snapshot)}
    if desktop:
        defaults, minimum = _of_desktop(snapshot, "vm_defaults"), _of_desktop(snapshot, "minimum_resources")
        chosen = {name: max(value, defaults.get(name, 0), minimum.get(name, 0)) for name, value in chosen.items()}
    chosen |= requested
    if desktop and (short := short_for_desktop(snapshot, chosen)):
        raise errors.InvalidConfig(details=short)
    return chosen


def require_desktop(snapshot: CatalogSnapshot | None) -> None:
    """Raise InvalidConfig unless the image offers a desktop."""
    if not catalog_snapshots.offers_desktop(snapshot):
        raise errors.InvalidConfig(details={"desktop": ["This image has no desktop."]})


def short_for_desktop(snapshot: CatalogSnapshot | None, given: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the sizes that are below the needs of the image's desktop, by their names in requests, each with an error
    message.
    """
    minimum = _of_desktop(snapshot, "minimum_resources")
    return {SHOWN[name]: [_shortage(name, value)] for name, value in minimum.items() if given[name] < value}


def _shortage(name: str, minimum: int) -> str:
    if name == "cpu_millis":
        return f"The desktop of this image needs at least {minimum / 1000:g} CPUs."
    return f"The desktop of this image needs at least {minimum} MiB."


def _of_preset(snapshot: CatalogSnapshot | None) -> dict[str, int]:
    return shapes.columns(snapshot["vm_defaults"]) if snapshot and snapshot["preset"] else {}


def _of_desktop(snapshot: CatalogSnapshot | None, part: str) -> dict[str, int]:
    desktop: dict[str, Any] = (snapshot["desktop"] if snapshot else None) or {}
    return shapes.columns(desktop.get(part))
