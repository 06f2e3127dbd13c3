"""The part of Caddy's configuration that serves pages. Imports no Django."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Protocol
from urllib.parse import urlsplit

from edge.addresses import PageAddress, both_forms, page_addresses
from edge.pages import page

_SHARED = Path(__file__).with_name("Pages.template")
_DOMAIN = Path(__file__).with_name("PageDomain.template")
NOT_FOUND = "There is no page at this address."


class PageSettings(Protocol):
    """The settings of the platform from which the sites of pages are made."""

    state: Path
    bind: str
    port: int
    pages_url: tuple[str, ...]
    pages_certificate: str
    pages_key: str
    behind_proxy: bool


def page_snippets(run_dir: Path) -> str:
    """Return the snippets that all sites of pages share."""
    return Template(_SHARED.read_text()).substitute(
        not_found_page=page("Not found", NOT_FOUND), api=f"unix/{run_dir}/api.sock"
    )


def page_sites(settings: PageSettings) -> str:
    """Return one site for each domain. Raise ValueError if a domain cannot be served."""
    addresses = page_addresses(settings.pages_url).values()
    return "".join(_domain_site(settings, address) for address in addresses)


def _domain_site(settings: PageSettings, address: PageAddress) -> str:
    return Template(_DOMAIN.read_text()).substitute(
        domain=address.domain,
        site=_site_address(settings, address),
        bind=settings.bind,
        certificate=_certificate(settings, address),
        suffix=re.escape(f".{address.domain}"),
        slugs=f"{settings.state}/pages/by-slug/{address.domain}",
    )


def _is_https(settings: PageSettings, address: PageAddress) -> bool:
    return address.template.startswith("https:") and not settings.behind_proxy


def _site_address(settings: PageSettings, address: PageAddress) -> str:
    if not _is_https(settings, address):
        return both_forms(f"*.{address.domain}", settings.port)
    port = urlsplit(address.url("slug")).port
    return f"https://*.{address.domain}{f':{port}' if port else ''}"


def _certificate(settings: PageSettings, address: PageAddress) -> str:
    """Return the line of the certificate, which is for every name below a domain, so it comes as files."""
    if not _is_https(settings, address):
        return ""
    files = [settings.pages_certificate, settings.pages_key]
    if not all(files):
        raise ValueError("PLATFORM_PAGES_CERTIFICATE and PLATFORM_PAGES_KEY must name files, because pages are https.")
    return f"tls {files[0]} {files[1]}"
