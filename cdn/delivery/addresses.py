"""Addresses of delivered files: `<CDN>/f/<file_id>/<hash>.<ext>`, variants `<name>-<hash>.<ext>`.

Files below `/f/` are shown by browsers, files below `/a/` are saved. An address carries the hash of its content, so the
content never changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.conf import settings

from cdn.types import is_inline
from edge.addresses import cdn_address

if TYPE_CHECKING:
    from cdn.models import File, Variant

INLINE, ATTACHMENT = "f", "a"
HASH_CHARS = 32
# The edge has the same pattern (edge/Cdn.template).
_PATH = re.compile(
    r"/([af])/(file_[a-z2-7]{16})/((?:([A-Za-z0-9_-]{1,64})-)?([0-9a-f]{32})\.((?:utf8\.)?[a-z0-9]{1,16}))"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of an address. `variant` is empty for the bytes as they were uploaded."""

    kind: str
    file_id: str
    name: str
    variant: str


def address_of(path: str) -> Address | None:
    """Return the parts of a path; None for a path of any other form."""
    found = _PATH.fullmatch(path)
    return Address(found[1], found[2], found[3], found[4] or "") if found else None


def file_url(file: File) -> str:
    """Return the address of the bytes as they were uploaded. Only a published file has one."""
    return cdn_address(settings.ENV.cdn_url).url(file_path(file))


def variant_url(variant: Variant) -> str:
    """Return the address of a variant."""
    return cdn_address(settings.ENV.cdn_url).url(variant_path(variant))


def file_path(file: File) -> str:
    """Return the path of a file below the root of the tree."""
    return _path(file.pk, "", file.sha256, file.content_type, file.extension)


def variant_path(variant: Variant) -> str:
    """Return the path of a variant below the root of the tree."""
    return _path(variant.file_id, variant.name, variant.sha256, variant.content_type, variant.extension)


def _path(file_id: str, variant: str, sha256: str, content_type: str, extension: str) -> str:
    kind = INLINE if is_inline(content_type) else ATTACHMENT
    name = f"{sha256[:HASH_CHARS]}.{extension.removeprefix('.') or 'bin'}"
    return f"{kind}/{file_id}/{variant}-{name}" if variant else f"{kind}/{file_id}/{name}"
