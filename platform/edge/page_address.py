"""Addresses of pages, by templates such as `https://{slug}.pages.example.org`, one for each domain.

Imports no Django.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from urllib.parse import urlsplit

PLACEHOLDER = "{slug}"
TEMPLATE = re.compile(r"https?://\{slug\}(\.[a-z0-9-]{1,63})+(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class PageAddress:
    """A parsed template. `domain` is the host name after its first label, without the dot."""

    template: str
    domain: str

    @classmethod
    def of(cls, template: str) -> Self:
        """Parse a template. Raises ValueError with a message for the operator."""
        if not TEMPLATE.fullmatch(template):
            raise ValueError("Give addresses such as https://{slug}.pages.example.org, lowercase, without a path.")
        host = urlsplit(template.replace(PLACEHOLDER, "slug")).hostname or ""
        return cls(template, host.removeprefix("slug."))

    def url(self, slug: str) -> str:
        """The address of one page."""
        return self.template.replace(PLACEHOLDER, slug)

    def release_url(self, slug: str, number: int) -> str:
        """The address of one kept release. No slug has two hyphens in a row."""
        return self.url(f"{slug}--r{number}")


@lru_cache(maxsize=4)
def page_addresses(templates: tuple[str, ...]) -> dict[str, PageAddress]:
    """By domain, in the order of the templates; the first is the default one.

    Raises as `PageAddress.of`, and ValueError for none, and for two of one domain.
    """
    found = [PageAddress.of(template) for template in templates]
    by_domain = {address.domain: address for address in found}
    if not found or len(by_domain) < len(found):
        raise ValueError("Give at least one address, and one for each domain.")
    return by_domain


def default_domain(templates: tuple[str, ...]) -> str:
    """Return the domain of pages which name none."""
    return next(iter(page_addresses(templates)))


def page_url(templates: tuple[str, ...], domain: str, slug: str) -> str:
    """The address of a page; also in a domain that is no setting any more."""
    address = page_addresses(templates).get(domain)
    return address.url(slug) if address else f"https://{slug}.{domain}"
