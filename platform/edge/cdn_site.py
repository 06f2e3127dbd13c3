"""The part of Caddy's configuration that delivers files of the CDN. Imports no Django."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Protocol
from urllib.parse import urlsplit

from edge.addresses import CdnAddress, both_forms

_SITE = Path(__file__).with_name("Cdn.template")
_UPLOADS = Path(__file__).with_name("CdnUploads.template")
UPLOADS = "/cdn/uploads/"
# Below the root of the CDN's host: uploads by token.
API_PATH = "api"
# A script, or anything that could load one, is saved and not shown; as a picture of a page an SVG still is.
SAVED_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_TYPE = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+(; charset=utf-8)?")
_EXTENSION = re.compile(r"(utf8\.)?[a-z0-9]{1,16}")
UNKNOWN_TYPE = "application/octet-stream"


class CdnSettings(Protocol):
    """The settings of the platform from which the site is made."""

    state: Path
    bind: str
    port: int
    base_url: str
    cdn_url: str
    cdn_certificate: str
    cdn_key: str
    cdn_s3_bucket: str
    cdn_s3_endpoint: str
    cdn_s3_addressing: str
    behind_proxy: bool

    @property
    def cdn_types(self) -> Mapping[str, str]:
        """Return content types by extension."""


def upload_snippets() -> str:
    """Return the part of the platform's own site that is about uploads."""
    return _UPLOADS.read_text()


def cdn_site(settings: CdnSettings, run_dir: Path) -> str:
    """Return the site. Raise ValueError if it cannot be served."""
    address = CdnAddress.of(settings.cdn_url)
    if address.host == urlsplit(settings.base_url).hostname:
        raise ValueError(f"PLATFORM_CDN_URL must have another host than PLATFORM_BASE_URL; both have {address.host}.")
    return Template(_SITE.read_text()).substitute(
        site=_site_address(settings, address),
        bind=settings.bind,
        certificate=_certificate(settings, address),
        live=f"{settings.state}/cdn/live",
        types=_type_lines(settings.cdn_types),
        unknown_type=UNKNOWN_TYPE,
        saved_policy=SAVED_POLICY,
        deliver="cdn_stored" if settings.cdn_s3_bucket else "cdn_linked",
        store=_store_origin(settings),
        store_host=s3_host(settings) if settings.cdn_s3_bucket else "localhost",
        api=f"unix/{run_dir}/api.sock",
        streams=f"unix/{run_dir}/streams.sock",
        base_host=urlsplit(settings.base_url).hostname,
    )


def s3_host(settings: CdnSettings) -> str:
    """Return host and port of the bucket's objects."""
    place = urlsplit(settings.cdn_s3_endpoint).netloc
    return f"{settings.cdn_s3_bucket}.{place}" if settings.cdn_s3_addressing == "virtual" else place


def _store_origin(settings: CdnSettings) -> str:
    """Return the store's origin; without a bucket, an address that is never asked."""
    if not settings.cdn_s3_bucket:
        return "http://localhost:9"
    return f"{urlsplit(settings.cdn_s3_endpoint).scheme}://{s3_host(settings)}"


def _type_lines(types: Mapping[str, str]) -> str:
    """Return lines of Caddy's `map`. Raise ValueError for what is no type or extension."""
    for extension, kind in types.items():
        if not (_EXTENSION.fullmatch(extension) and _TYPE.fullmatch(kind)):
            raise ValueError(f"{extension!r}: {kind!r} is not a type of files.")
    return "\n\t\t\t\t".join(f'{extension} "{kind}"' for extension, kind in sorted(types.items()))


def _is_https(settings: CdnSettings, address: CdnAddress) -> bool:
    return address.scheme == "https" and not settings.behind_proxy


def _site_address(settings: CdnSettings, address: CdnAddress) -> str:
    if _is_https(settings, address):
        return f"https://{address.host}{address.port}"
    return both_forms(address.host, settings.port)


def _certificate(settings: CdnSettings, address: CdnAddress) -> str:
    """Return files, or one that Caddy orders by itself, as for an https base URL."""
    if not _is_https(settings, address):
        return ""
    files = [settings.cdn_certificate, settings.cdn_key]
    if all(files):
        return f"tls {files[0]} {files[1]}"
    if any(files) or urlsplit(settings.base_url).scheme != "https":
        raise ValueError(
            "PLATFORM_CDN_CERTIFICATE and PLATFORM_CDN_KEY must name files, because PLATFORM_CDN_URL is https."
        )
    return ""
