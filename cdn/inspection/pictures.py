"""Pictures: their size from the header first, then their pixels, by libvips with five of its loaders."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import pyvips

from cdn.inspection.limits import descriptors_close
from cdn.inspection.messages import (
    DAMAGED,
    FRAMES,
    FRAMES_MAX,
    LIMITS,
    PIXELS,
    PIXELS_MAX,
    RESOURCES,
    UNSUPPORTED,
    Found,
    InspectionOrder,
)
from cdn.inspection.variants import FAILING, variant_write

# type -> class of the loader, and the function that loads
_LOADERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "image/jpeg": ("VipsForeignLoadJpeg", pyvips.Image.jpegload_source),
    "image/png": ("VipsForeignLoadPng", pyvips.Image.pngload_source),
    "image/webp": ("VipsForeignLoadWebp", pyvips.Image.webpload_source),
    "image/gif": ("VipsForeignLoadNsgif", pyvips.Image.gifload_source),
    "image/avif": ("VipsForeignLoadHeif", pyvips.Image.heifload_source),
}
_ANIMATED = ("image/gif", "image/webp")
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_CHECK_SIDE = 64


def picture_inspect(order: InspectionOrder) -> Found:
    """Nothing is decoded of a picture that its header shows to be too large."""
    if order.content_type not in _LOADERS:
        return Found(order.content_type, reason=UNSUPPORTED)
    _loader_allow(order.content_type)
    try:
        content = mmap.mmap(0, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return Found(order.content_type, reason=RESOURCES)
    targets = [pyvips.Target.new_to_descriptor(variant.descriptor) for variant in order.variants]
    descriptors_close()
    try:
        image = _LOADERS[order.content_type][1](pyvips.Source.new_from_memory(content))
        found = _header(order, image)
    except pyvips.Error:
        return Found(order.content_type, reason=DAMAGED)
    return found if found.reason else _pixels(order, content, targets, found, image)


def _pixels(
    order: InspectionOrder, content: mmap.mmap, targets: list[pyvips.Target], found: Found, image: pyvips.Image
) -> Found:
    """Make the variants, and decode everything at least once."""
    has_profile = image.get_typeof("icc-profile-data") != 0
    try:
        made = tuple(
            variant_write(pyvips.Source.new_from_memory(content), target, variant, found, has_profile=has_profile)
            for variant, target in zip(order.variants, targets, strict=True)
        )
        if not any(_reads_all(variant.fit, found) for variant in order.variants):
            _decode(order.content_type, content)
    except pyvips.Error:
        return found._replace(reason=DAMAGED)
    return found._replace(variants=made)


def _loader_allow(content_type: str) -> None:
    """That of the sniffed type alone: VIPS_BLOCK_UNTRUSTED leaves loaders of SVG, TIFF, CSV and others."""
    pyvips.operation_block_set("VipsForeignLoad", True)
    pyvips.operation_block_set(_LOADERS[content_type][0], False)
    pyvips.cache_set_max(0)


def _header(order: InspectionOrder, image: pyvips.Image) -> Found:
    """Upright width and height. Raises pyvips.Error."""
    frames = _field(image, "n-pages", 1) if order.content_type in _ANIMATED else 1
    width, height = image.width, image.height
    if _field(image, "orientation", 1) in _SIDEWAYS:
        width, height = height, width
    reason = _too_large(order, width, height, frames)
    if order.content_type == "image/avif" and image.get("heif-compression") != "av1":
        reason = UNSUPPORTED
    return Found(order.content_type, width=width, height=height, frames=frames, reason=reason)


def _too_large(order: InspectionOrder, width: int, height: int, frames: int) -> str:
    if not order.allows(width, height):
        return LIMITS
    if frames > FRAMES_MAX:
        return FRAMES
    return PIXELS if width * height * frames > PIXELS_MAX else ""


def _reads_all(fit: str, found: Found) -> bool:
    """Whether a variant could be made only of a file that is whole."""
    return fit != "cover" and found.frames == 1


def _decode(content_type: str, content: mmap.mmap) -> None:
    """Every pixel of every frame, JPEG at an eighth of its size. Raises pyvips.Error."""
    options = f"[{FAILING},n=-1]" if content_type in _ANIMATED else f"[{FAILING}]"
    small = pyvips.Image.thumbnail_source(
        pyvips.Source.new_from_memory(content),
        _CHECK_SIDE,
        height=_CHECK_SIDE,
        size="down",
        option_string=options,
    )
    small.avg()


def _field(image: pyvips.Image, name: str, default: int) -> int:
    return int(image.get(name)) if image.get_typeof(name) else default
