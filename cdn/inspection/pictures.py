"""Inspection of pictures: their size from the header first, then their pixels, by libvips with five of its loaders."""

from __future__ import annotations

import mmap

import pyvips

from cdn.inspection.formats import PICTURES
from cdn.inspection.limits import close_descriptors
from cdn.inspection.loading import ANIMATED, allow_loader, load_picture
from cdn.inspection.messages import (
    DAMAGED,
    FRAMES,
    FRAMES_MAX,
    LIMITS,
    PIXELS,
    PIXELS_MAX,
    RESOURCES,
    UNSUPPORTED,
    Findings,
    InspectionOrder,
)
from cdn.inspection.variants import write_variant

_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_CHECK_SHRINK = 8


def inspect_picture(order: InspectionOrder) -> Findings:
    """Return the findings. A picture whose header shows that it is too large is not decoded."""
    if order.content_type not in PICTURES:
        return Findings(order.content_type, reason=UNSUPPORTED)
    allow_loader(order.content_type)
    try:
        content = mmap.mmap(0, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return Findings(order.content_type, reason=RESOURCES)
    targets = [pyvips.Target.new_to_descriptor(variant.descriptor) for variant in order.variants]
    close_descriptors()
    try:
        image = load_picture(order.content_type, content)
        found = _header(order, image)
    except pyvips.Error:
        return Findings(order.content_type, reason=DAMAGED)
    return found if found.reason else _pixels(order, content, targets, found, image)


def _pixels(
    order: InspectionOrder, content: mmap.mmap, targets: list[pyvips.Target], found: Findings, image: pyvips.Image
) -> Findings:
    """Make the variants, and decode everything at least once."""
    has_profile = image.get_typeof("icc-profile-data") != 0
    try:
        made = tuple(
            write_variant(content, target, variant, found, has_profile=has_profile)
            for variant, target in zip(order.variants, targets, strict=True)
        )
        if not any(_reads_all(variant.fit, found) for variant in order.variants):
            _decode(order.content_type, content)
    except pyvips.Error:
        return found._replace(reason=DAMAGED)
    return found._replace(variants=made)


def _header(order: InspectionOrder, image: pyvips.Image) -> Findings:
    """Return the findings of the header, with upright width and height. Raise pyvips.Error."""
    frames = _field(image, "n-pages", 1) if order.content_type in ANIMATED else 1
    width, height = image.width, image.height
    if _field(image, "orientation", 1) in _SIDEWAYS:
        width, height = height, width
    reason = _too_large(order, width, height, frames)
    if order.content_type == "image/avif" and image.get("heif-compression") != "av1":
        reason = UNSUPPORTED
    return Findings(order.content_type, width=width, height=height, frames=frames, reason=reason)


def _too_large(order: InspectionOrder, width: int, height: int, frames: int) -> str:
    if not order.allows(width, height):
        return LIMITS
    if frames > FRAMES_MAX:
        return FRAMES
    return PIXELS if width * height * frames > PIXELS_MAX else ""


def _reads_all(fit: str, found: Findings) -> bool:
    """Return whether this variant could only be made of a file that is whole."""
    return fit != "cover" and found.frames == 1


def _decode(content_type: str, content: mmap.mmap) -> None:
    """Decode every pixel of every frame, a JPEG at an eighth of its size. Raise pyvips.Error."""
    shrink = _CHECK_SHRINK if content_type == "image/jpeg" else 1
    load_picture(content_type, content, shrink=shrink, all_frames=True).avg()


def _field(image: pyvips.Image, name: str, default: int) -> int:
    return int(image.get(name)) if image.get_typeof(name) else default
