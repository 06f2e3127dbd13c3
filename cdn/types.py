"""Content types of files. Free of Django."""

from __future__ import annotations

_INLINE = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp", "gif": "image/gif", "mp4": "video/mp4"}
_SAVED = {
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "bin": "application/octet-stream",
}


def content_types() -> dict[str, str]:
    """By extension."""
    return _INLINE | _SAVED


def is_inline(content_type: str) -> bool:
    """Whether browsers may show it."""
    return content_type in _INLINE.values()
