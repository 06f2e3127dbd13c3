"""Names and slugs that the caller left out."""

from __future__ import annotations

import re

from django.utils.text import slugify

from accounts.models import Account
from common.ids import random_suffix
from workspaces.models import Workspace

MIN_SLUG, MAX_SLUG = 3, 128
# Words that stand where an id or slug stands in a route; a workspace of this slug could not be reached by it.
RESERVED = frozenset({"activity", "estimate", "images", "quota", "usage"})


def name_from_image(image: str) -> str:
    """`ghcr.io/team/tool:1.2@sha256:...` is called `tool`."""
    return image.split("@", maxsplit=1)[0].rsplit("/", 1)[-1].split(":", maxsplit=1)[0] or "workspace"


def is_slug(text: str) -> bool:
    """Whether a caller may choose it."""
    return re.fullmatch(rf"[a-z0-9-]{{{MIN_SLUG},{MAX_SLUG}}}", text) is not None and text not in RESERVED


def free_slug(account: Account, name: str) -> str:
    """A slug from the name, with a short suffix when taken. Call it under the account's lock."""
    base = slugify(name.replace("_", "-"))[: MAX_SLUG - 8].strip("-") or "workspace"
    if len(base) >= MIN_SLUG and base not in RESERVED and not is_taken(account, base):
        return base
    while True:
        candidate = f"{base}-{random_suffix(6)}"
        if not is_taken(account, candidate):
            return candidate


def is_taken(account: Account, slug: str) -> bool:
    return Workspace.objects.filter(account=account, slug=slug).exists()
