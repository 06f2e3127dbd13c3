"""Slugs of namespaces."""

from __future__ import annotations

import re

from django.utils.text import slugify

from common.errors import ValidationError

MAX_LENGTH = 128
# The valid values of a workspace's `namespace`, without a hyphen at either end.
VALID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,126}[A-Za-z0-9])?")
RESERVED = frozenset({"ensure"})  # a route under /namespaces
RULE = "1 to 128 letters, digits and hyphens, not beginning or ending with a hyphen, and not `ensure`."


def chosen_slug(name: str | None, slug: str | None) -> str:
    """Return the slug that was given, else the one derived from the name. Raise ValidationError (neither, or not
    valid).
    """
    if slug is None and name is None:
        raise ValidationError(details={"name": ["Give a name or a slug."]})
    if slug is not None:
        if not is_valid(slug):
            raise ValidationError(details={"slug": [f"A slug has {RULE}"]})
        return slug
    derived = slugify(name or "")[:MAX_LENGTH].replace("_", "-").strip("-")
    if not is_valid(derived):
        raise ValidationError(details={"name": [f"No slug can be made from this name; give one: {RULE}"]})
    return derived


def is_valid(slug: str) -> bool:
    return VALID.fullmatch(slug) is not None and slug not in RESERVED
