"""Variants that a permit asked for, as orders to the confined process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdn.inspection.messages import VariantOrder
from cdn.types import FITS, VARIANT_FORMATS, FileType, file_type

_SAME_FORMAT = {content_type: name for name, content_type in VARIANT_FORMATS.items()}


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """Variant to make. `order.descriptor` is set when its file is open."""

    name: str
    order: VariantOrder

    @property
    def type(self) -> FileType:
        return file_type(VARIANT_FORMATS[self.order.format])


def variants_planned(wanted: Mapping[str, Mapping[str, Any]], content_type: str) -> list[PlannedVariant]:
    """Return the variants in the requested order. Default format: that of the original, PNG for a GIF."""
    same = _SAME_FORMAT.get(content_type, "png")
    return [PlannedVariant(name, _order(options, same)) for name, options in wanted.items()]


def _order(options: Mapping[str, Any], same: str) -> VariantOrder:
    return VariantOrder(
        descriptor=-1,
        width=options.get("width"),
        height=options.get("height"),
        fit=options.get("fit") or FITS[0],
        format=options.get("format") or same,
        quality=options.get("quality"),
    )
