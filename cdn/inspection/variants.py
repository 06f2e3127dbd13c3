"""Variants of a picture: upright, sRGB, without metadata, never larger than the original."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import pyvips

from cdn.inspection.loading import load_picture
from cdn.inspection.messages import Findings, MadeVariant, VariantOrder

_SAVERS: dict[str, Callable[[pyvips.Image, pyvips.Target, int | None], None]] = {
    "jpeg": lambda image, target, quality: image.jpegsave_target(target, Q=quality or 82, keep="none"),
    "png": lambda image, target, quality: image.pngsave_target(target, keep="none"),
    "webp": lambda image, target, quality: image.webpsave_target(target, Q=quality or 80, keep="none"),
    # The encoder's own default effort takes ten times as long.
    "avif": lambda image, target, quality: image.heifsave_target(
        target, Q=quality or 60, compression="av1", bitdepth=8, effort=2, keep="none"
    ),
}
_WHITE = [255.0]


def write_variant(
    content: mmap.mmap, target: pyvips.Target, order: VariantOrder, found: Findings, *, has_profile: bool
) -> MadeVariant:
    """Make a variant of the first frame, and write it. Raises pyvips.Error."""
    box = variant_box(order, found)
    options: dict[str, Any] = {"crop": "centre"} if order.fit == "cover" else {}
    options |= {"output_profile": "srgb"} if has_profile else {}
    loaded = load_picture(found.content_type, content, shrink=_shrink_of_loader(box, order.fit, found))
    size = "force" if order.fit == "fill" else "down"
    image = loaded.thumbnail_image(box[0], height=box[1], size=size, **options)
    image = _plain(image, with_alpha=order.format != "jpeg")
    _SAVERS[order.format](image, target, order.quality)
    return MadeVariant(image.width, image.height)


def variant_box(order: VariantOrder, found: Findings) -> tuple[int, int]:
    """Return the requested box, no side above the original's; `cover` keeps the box's proportions."""
    assert found.width is not None  # noqa: S101 - a header was read
    assert found.height is not None  # noqa: S101
    width, height = order.width or found.width, order.height or found.height
    if order.fit == "cover" and order.width and order.height:
        share = min(1.0, found.width / width, found.height / height)
        return max(1, round(width * share)), max(1, round(height * share))
    return min(width, found.width), min(height, found.height)


def _shrink_of_loader(box: tuple[int, int], fit: str, found: Findings) -> int:
    """Return at most half of the needed shrinking: a better filter does the rest."""
    sides = ((found.width or 0) / box[0], (found.height or 0) / box[1])
    shrink = max(sides) if fit == "contain" else min(sides)
    return 8 if shrink >= 16 else 4 if shrink >= 8 else 2 if shrink >= 4 else 1


def _plain(image: pyvips.Image, *, with_alpha: bool) -> pyvips.Image:
    """Return the picture with 8 bits a channel, grey or sRGB."""
    if image.hasalpha() and not with_alpha:
        image = image.flatten(background=_WHITE)
    space = "b-w" if image.interpretation in ("b-w", "grey16") else "srgb"
    return image if image.interpretation == space else image.colourspace(space)
