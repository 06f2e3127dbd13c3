"""Check of `manage.py doctor`: whether the domains of pages are separate from the platform's."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from publicsuffixlist import PublicSuffixList

from edge.addresses import page_addresses

NAME = "domain of pages"
FIX = "choose a separate domain for pages (docs/operations.md, Pages)"
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Yield the lines, each with name, whether it is as it should be, message, fix."""
    yield domain_line(settings.BASE_URL, settings.ENV.pages_url)


def domain_line(base_url: str, pages_url: tuple[str, ...]) -> Line:
    """Return whether a domain of pages shares its registrable domain with the platform.

    Sites below a registrable domain can set cookies for all of it, and count as one site with it.
    """
    suffixes = PublicSuffixList()
    platform = suffixes.privatesuffix(urlsplit(base_url).hostname or "")
    domains = page_addresses(pages_url)
    shared = [name for name in domains if platform and suffixes.privatesuffix(f"slug.{name}") == platform]
    if shared:
        message = f"{', '.join(shared)} shares {platform} with the platform: sites of users can set cookies for it"
        return NAME, False, message, FIX
    return NAME, True, "does not share a registrable domain with the platform", ""
