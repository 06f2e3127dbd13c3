"""Generates Caddy's configuration from the template beside this file. Imports no Django: it runs before the
processes start.

The configuration is static on purpose: any change would cut every proxied WebSocket and event stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from edge.address import PublicAddress
from edge.pages import page
from edge.route_cache import route_cache_folder
from edge.secret import edge_secret

TEMPLATE = Path(__file__).with_name("Caddyfile.template")
BODY_LIMIT_BYTES = 10 << 20  # as PLATFORM_BODY_LIMIT_BYTES where it is not set
CLOSED = "The workspace runs, but nothing answers on this port of it."


def caddyfile(settings: Mapping[str, str], run_dir: Path) -> str:
    """The Caddyfile of an instance, from its `PLATFORM_*` settings; the upstream sockets are in `run_dir`.

    It contains a secret. Raises ValueError with a message for a PLATFORM_PUBLIC_URL that cannot be served.
    """
    behind = _behind_proxy(settings)
    public = PublicAddress.of(settings["PLATFORM_PUBLIC_URL"])
    return Template(TEMPLATE.read_text()).substitute(
        address=_site_address(settings),
        machines=_machines_address(settings),
        suffix=re.escape(public.suffix),
        # Labels are counted from the right, from 0.
        label=f"{{http.request.host.labels.{public.suffix.count('.')}}}",
        body_limit=settings.get("PLATFORM_BODY_LIMIT_BYTES") or BODY_LIMIT_BYTES,
        routes=route_cache_folder(run_dir),
        certificate=_certificate(settings),
        bind=settings["PLATFORM_BIND"],
        base_host=urlsplit(settings["PLATFORM_BASE_URL"]).hostname,
        secret=edge_secret(settings["PLATFORM_SECRET_KEY"]),
        automatic_https="" if _https(settings) else "auto_https off",
        # Behind another proxy its X-Forwarded-* are kept; from anybody else they are replaced.
        trusted_proxies="trusted_proxies private_ranges" if behind else "",
        forwarded="" if behind else "request_header -X-Forwarded-*",
        static=f"{settings['PLATFORM_STATE']}/static",
        api=f"unix/{run_dir}/api.sock",
        streams=f"unix/{run_dir}/streams.sock",
        closed=CLOSED,
        closed_page=page("Nothing answers on this port", CLOSED),
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


def _machines_address(settings: Mapping[str, str]) -> str:
    public = PublicAddress.of(settings["PLATFORM_PUBLIC_URL"])
    if _public_https(settings):
        return f"https://*{public.suffix}{public.port}"
    return f"http://*{public.suffix}:{settings['PLATFORM_PORT']}"


def _public_https(settings: Mapping[str, str]) -> bool:
    return settings["PLATFORM_PUBLIC_URL"].startswith("https:") and not _behind_proxy(settings)


def _certificate(settings: Mapping[str, str]) -> str:
    """A certificate for every name below a domain takes a DNS provider's help, so it comes as files."""
    if not _public_https(settings):
        return ""
    files = [settings.get("PLATFORM_PUBLIC_CERTIFICATE", ""), settings.get("PLATFORM_PUBLIC_KEY", "")]
    if not all(files):
        raise ValueError("PLATFORM_PUBLIC_CERTIFICATE and PLATFORM_PUBLIC_KEY must name files, as it is https.")
    return f"tls {files[0]} {files[1]}"
