"""Names and slugs that the caller left out."""

from __future__ import annotations

import re

from django.utils.text import slugify

from accounts.models import Account
from common.ids import random_suffix
from workspaces.models import Workspace

MIN_SLUG, MAX_SLUG = 3, 128
# Words at the place of an id or slug in a route. A workspace with such a slug could not be reached by it.
RESERVED = frozenset({"activity", "estimate", "images", "quota", "usage"})


def name_from_image(image: str) -> str:
    """Return the name of a workspace from its image: `ghcr.io/team/tool:1.2@sha256:...` gives `tool`."""
    return image.split("@", maxsplit=1)[0].rsplit("/", 1)[-1].split(":", maxsplit=1)[0] or "workspace"


def is_slug(text: str) -> bool:
    """Return whether a caller may choose this slug."""
    return re.fullmatch(rf"[a-z0-9-]{{{MIN_SLUG},{MAX_SLUG}}}", text) is not None and text not in RESERVED


def free_slug(account: Account, name: str) -> str:
    """Make a slug from the name, with a short suffix if it is taken. Call it under the account's lock."""
    base = slugify(name.replace("_", "-"))[: MAX_SLUG - 8].strip("-") or "workspace"
    if len(base) >= MIN_SLUG and base not in RESERVED and not is_taken(account, base):
        return base
    while True:
        candidate = f"{base}-{random_suffix(6)}"
        if not is_taken(account, candidate):
            return candidate


def is_taken(account: Account, slug: str) -> bool:
    return Workspace.objects.filter(account=account, slug=slug).exists()
