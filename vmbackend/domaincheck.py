"""Whether what users publish has a domain that is separate from the platform's, for `manage.py doctor`. No Django."""

from __future__ import annotations

from urllib.parse import urlsplit

from publicsuffixlist import PublicSuffixList

from vmbackend.hostcheck import Finding

FIX = "choose a domain of its own for pages (docs/operations.md, Pages)"


def check_pages_domains(base_url: str, pages_url: tuple[str, ...]) -> Finding:
    """Sites below a registrable domain can set cookies for all of it, and count as one site with it."""
    suffixes = PublicSuffixList()
    platform = suffixes.privatesuffix(urlsplit(base_url).hostname or "")
    domains = [urlsplit(template.replace("{slug}", "slug")).hostname or "" for template in pages_url]
    shared = [name.partition(".")[2] for name in domains if platform and suffixes.privatesuffix(name) == platform]
    if shared:
        message = f"{', '.join(shared)} shares {platform} with the platform: sites of users can set cookies for it"
        return Finding("domain of pages", False, message, FIX, needed=False)
    return Finding("domain of pages", True, "shares no registrable domain with the platform")
