"""The part of Caddy's configuration that serves the runtime under a host of its own. Imports no Django."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Protocol
from urllib.parse import urlsplit

from edge.addresses import RuntimeAddress, both_forms

_SITE = Path(__file__).with_name("Runtime.template")


class RuntimeSettings(Protocol):
    """The settings of the platform from which the site is made."""

    bind: str
    port: int
    base_url: str
    runtime_url: str
    cdn_url: str
    behind_proxy: bool


def runtime_site(settings: RuntimeSettings) -> str:
    """Return the site; empty if the address is a path, or has a name for each workspace. Raise ValueError if it cannot
    be served.
    """
    address = RuntimeAddress.of(settings.runtime_url)
    if not address.host or address.by_label:
        return ""
    if address.host in (urlsplit(settings.base_url).hostname, urlsplit(settings.cdn_url).hostname):
        raise ValueError("PLATFORM_RUNTIME_URL must have another host than PLATFORM_BASE_URL and PLATFORM_CDN_URL.")
    is_https = settings.runtime_url.startswith("https:") and not settings.behind_proxy
    if is_https and not settings.base_url.startswith("https:"):
        raise ValueError("PLATFORM_RUNTIME_URL can be https only if PLATFORM_BASE_URL is, which orders certificates.")
    site = f"https://{urlsplit(settings.runtime_url).netloc}" if is_https else both_forms(address.host, settings.port)
    return Template(_SITE.read_text()).substitute(site=site, bind=settings.bind)
