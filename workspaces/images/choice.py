"""What a create request chose: the image to run, and what the catalog says about it.

Runs in the transaction of the creation, after the look for an earlier request with the same idempotency key: a
repeated request answers what it made, whatever the catalog says by now.
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

# Of a request that names neither sizes nor a preset (specification, Workspace create config object).
DEFAULT_SIZES = {"cpu_millis": 1000, "memory_mb": 512, "disk_size_mb": 512}
SHOWN = {"cpu_millis": "cpus", "memory_mb": "memory_mb", "disk_size_mb": "disk_size_mb"}


@dataclass(frozen=True, slots=True)
class Choice:
    """`image` is what is pulled; `pin` is kept on the row, None where the catalog does not know the image."""

    image: str
    pin: CatalogSnapshot | None


def choose_image(*, image: str | None, preset: str | None, default: str) -> Choice:
    """The entry of a preset, else of an image (`default` where neither is given).

    Raises ValidationError (no such preset; an image that is not its base), InvalidConfig (no host runs the family).
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
        sentence = f"The preset {entry.preset} is based on {bases[0]}; leave the image out, or give that one."
        raise ValidationError(details={"image": [sentence]})


def require_env(pin: CatalogSnapshot | None, env: Mapping[str, str]) -> None:
    """Raises MissingRequiredEnv with every key that the entry requires and `env` lacks."""
    missing = [item["key"] for item in (pin["env"] if pin else []) if item.get("required") and item["key"] not in env]
    if missing:
        raise errors.MissingRequiredEnv(
            f"The image needs these in config.env: {', '.join(missing)}.", details={"missing": missing}
        )


def chosen_sizes(pin: CatalogSnapshot | None, asked: Mapping[str, int], *, desktop: bool) -> dict[str, int]:
    """The columns of resources: what was asked for, else the preset's, else the defaults.

    With a desktop: at least what it needs. Raises InvalidConfig where less was asked for.
    """
    chosen = {**DEFAULT_SIZES, **_of_preset(pin)}
    if desktop:
        usual, least = _of_desktop(pin, "vm_defaults"), _of_desktop(pin, "minimum_resources")
        chosen = {name: max(value, usual.get(name, 0), least.get(name, 0)) for name, value in chosen.items()}
    chosen |= asked
    if desktop and (short := short_for_desktop(pin, chosen)):
        raise errors.InvalidConfig(f"Too little for the desktop: {', '.join(sorted(short))}.", details=short)
    return chosen


def require_desktop(pin: CatalogSnapshot | None) -> None:
    """Raises InvalidConfig unless the image offers a desktop."""
    if not catalog_snapshots.offers_desktop(pin):
        raise errors.InvalidConfig(details={"desktop": ["This image has no desktop."]})


def short_for_desktop(pin: CatalogSnapshot | None, given: Mapping[str, int]) -> dict[str, list[str]]:
    """Which sizes are below what the image's desktop needs, by their names in requests, with a sentence each."""
    least = _of_desktop(pin, "minimum_resources")
    return {SHOWN[name]: [_sentence(name, value)] for name, value in least.items() if given[name] < value}


def _sentence(name: str, least: int) -> str:
    if name == "cpu_millis":
        return f"The desktop of this image needs at least {least / 1000:g} CPUs."
    return f"The desktop of this image needs at least {least} MiB."


def _of_preset(pin: CatalogSnapshot | None) -> dict[str, int]:
    return shapes.columns(pin["vm_defaults"]) if pin and pin["preset"] else {}


def _of_desktop(pin: CatalogSnapshot | None, part: str) -> dict[str, int]:
    desktop: dict[str, Any] = (pin["desktop"] if pin else None) or {}
    return shapes.columns(desktop.get(part))
