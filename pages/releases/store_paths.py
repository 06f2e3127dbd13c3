"""Paths of the files of pages.

incoming/<operation>/         a release that is being made, by one attempt: `public` is received from a guest
by-id/<page>/releases/<n>/    a release, which never changes: `public` is served, `manifest.json`, `rules.json`,
                              markers and links for the edge (pages/releases/rules_files.py)
by-id/<page>/current          link to the live release
by-id/<page>/retained/        files of earlier releases that are served for a day more; `retained.json` says until when
by-slug/<domain>/<slug>       link to by-id/<page>; without it no request reaches the page
trash/                        files that are being removed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SLUG = re.compile(_LABEL)
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Paths below the store's folder. Ids are checked: ValueError if an id is not a plain name."""

    root: Path

    def incoming(self, operation_id: str) -> Path:
        return self.root / "incoming" / checked_id(operation_id)

    def page(self, page_id: str) -> Path:
        return self.root / "by-id" / checked_id(page_id)

    def releases(self, page_id: str) -> Path:
        return self.page(page_id) / "releases"

    def release(self, page_id: str, number: int) -> Path:
        return self.releases(page_id) / str(number)

    def current(self, page_id: str) -> Path:
        return self.page(page_id) / "current"

    @property
    def trash(self) -> Path:
        return self.root / "trash"


def checked_id(value: str) -> str:
    """Return the id. Raise ValueError if it is not a plain name."""
    if not _ID.fullmatch(value):
        raise ValueError(f"{value!r} is not an id of a page or an operation.")
    return value


@dataclass(frozen=True, slots=True)
class PageName:
    """Name under which a page is served, below one of the platform's domains."""

    domain: str
    name: str

    @classmethod
    def slug(cls, domain: str, slug: str) -> PageName:
        """Return the name of a slug. `domain` is without a port. Raise ValueError."""
        if not (_HOST.fullmatch(domain) and _SLUG.fullmatch(slug)):
            raise ValueError(f"{slug!r} below {domain!r} is not a name of a page.")
        return cls(domain, slug)

    @property
    def place(self) -> str:
        """Return the path relative to the store's folder."""
        return f"by-slug/{self.domain}/{self.name}"

    def target(self, page_id: str) -> str:
        """Return the link's content, relative to its folder."""
        return f"../../by-id/{checked_id(page_id)}"
