"""Addresses of delivered files: `<CDN>/f/<file_id>/<hash>.<ext>`, variants `<name>-<hash>.<ext>`.

Below `/f/` files are shown by browsers, below `/a/` they are saved (attachment). An address carries the hash of its
content, so what it leads to never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from cdn.models import File, Variant

INLINE, ATTACHMENT = "f", "a"
HASH_CHARS = 32


def file_url(file: File) -> str:
    """Of the bytes as they were uploaded."""
    return f"{_base()}/{file_path(file)}"


def variant_url(variant: Variant) -> str:
    """Of one of its variants."""
    return f"{_base()}/{variant_path(variant)}"


def file_path(file: File) -> str:
    """Below the root of the tree; empty for a file that has no content yet."""
    return f"{_kind(file.content_type)}/{file.pk}/{file.sha256[:HASH_CHARS]}.{_extension(file.extension)}"


def variant_path(variant: Variant) -> str:
    name = f"{variant.name}-{variant.sha256[:HASH_CHARS]}.{_extension(variant.extension)}"
    return f"{_kind(variant.content_type)}/{variant.file_id}/{name}"


def _base() -> str:
    return str(settings.ENV.cdn_url).rstrip("/")


def _kind(content_type: str) -> str:
    from cdn.types import is_inline

    return INLINE if is_inline(content_type) else ATTACHMENT


def _extension(extension: str) -> str:
    return extension.removeprefix(".") or "bin"
