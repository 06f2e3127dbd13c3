"""Loading of pictures by libvips, each by the loader of its sniffed type and by no other."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import pyvips

# type -> class of the loader, and the function that loads. Thumbnails of libvips choose a loader themselves, which
# would be another one for a JPEG with a gain map. They also ignore `fail_on` if the file has no name.
_LOADERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "image/jpeg": ("VipsForeignLoadJpeg", pyvips.Image.jpegload_source),
    "image/png": ("VipsForeignLoadPng", pyvips.Image.pngload_source),
    "image/webp": ("VipsForeignLoadWebp", pyvips.Image.webpload_source),
    "image/gif": ("VipsForeignLoadNsgif", pyvips.Image.gifload_source),
    "image/avif": ("VipsForeignLoadHeif", pyvips.Image.heifload_source),
}
ANIMATED = ("image/gif", "image/webp")


def allow_loader(content_type: str) -> None:
    """Allow only the loader of this type: VIPS_BLOCK_UNTRUSTED leaves loaders of SVG, TIFF, CSV and others."""
    pyvips.operation_block_set("VipsForeignLoad", True)
    pyvips.operation_block_set(_LOADERS[content_type][0], False)
    pyvips.cache_set_max(0)


def load_picture(content_type: str, content: mmap.mmap, *, shrink: int = 1, all_frames: bool = False) -> pyvips.Image:
    """Return the picture, of which only the header is read yet. Reading a truncated picture fails later.

    `shrink` 2, 4 or 8: load it smaller, if the format can be decoded so. Raise pyvips.Error.
    """
    options: dict[str, Any] = {"n": -1} if all_frames and content_type in ANIMATED else {}
    if shrink > 1 and content_type == "image/jpeg":
        options["shrink"] = shrink
    elif shrink > 1 and content_type == "image/webp":
        options["scale"] = 1 / shrink
    source = pyvips.Source.new_from_memory(content)
    return _LOADERS[content_type][1](source, access="sequential", fail_on="truncated", **options)
