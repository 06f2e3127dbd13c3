"""Makes Caddy's configuration from the template beside this file. Imports no Django: it is made before the
processes.

The configuration is static on purpose: any change would cut every proxied WebSocket and event stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

TEMPLATE = Path(__file__).with_name("Caddyfile.template")


def caddyfile(settings: Mapping[str, str], run_dir: Path) -> str:
    """The Caddyfile of an instance, from its `PLATFORM_*` settings; the upstream sockets are in `run_dir`."""
    return Template(TEMPLATE.read_text()).substitute(
        address=_site_address(settings),
        bind=settings["PLATFORM_BIND"],
        automatic_https="" if _https(settings) else "auto_https off",
        # Behind another proxy its X-Forwarded-* are kept; from anybody else they are replaced.
        trusted_proxies="trusted_proxies private_ranges" if _behind_proxy(settings) else "",
        static=f"{settings['PLATFORM_STATE']}/static",
        api=f"unix/{run_dir}/api.sock",
        streams=f"unix/{run_dir}/streams.sock",
    )


def _behind_proxy(settings: Mapping[str, str]) -> bool:
    return settings.get("PLATFORM_BEHIND_PROXY", "").lower() in {"1", "true", "yes", "on"}


def _https(settings: Mapping[str, str]) -> bool:
    return urlsplit(settings["PLATFORM_BASE_URL"]).scheme == "https" and not _behind_proxy(settings)


def _site_address(settings: Mapping[str, str]) -> str:
    """An https base URL makes Caddy serve that name with a certificate of its own; else plain HTTP on the
    port.
    """
    if _https(settings):
        return f"https://{urlsplit(settings['PLATFORM_BASE_URL']).netloc}"
    return f"http://:{settings['PLATFORM_PORT']}"
