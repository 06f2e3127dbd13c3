"""The part of Caddy's configuration for certificates of names that users bring. Imports no Django."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from string import Template
from typing import Protocol

from edge.addresses import page_addresses
from edge.challenges import challenges_folder

_CHALLENGES = Path(__file__).with_name("Certificates.template")
_SITES = Path(__file__).with_name("CertificateSites.template")
GETTER_USER = "edge"


class CertificateSettings(Protocol):
    """The settings of the platform from which these sites are made."""

    state: Path
    bind: str
    domains_https_port: int
    domains_keys_port: int
    secret_key: str
    pages_url: tuple[str, ...]


def certificate_options(settings: CertificateSettings) -> str:
    """Return Caddy's global options: Caddy never orders a certificate of its own for a name that it is asked for."""
    if not settings.domains_https_port:
        return ""
    return f"on_demand_tls {{\n\t\task http://127.0.0.1:{settings.domains_keys_port}/refused\n\t}}"


def challenge_snippet(settings: CertificateSettings) -> str:
    """Return the snippet `acme_challenge`."""
    return Template(_CHALLENGES.read_text()).substitute(challenges=challenges_folder(settings.state))


def certificate_sites(settings: CertificateSettings, run_dir: Path) -> str:
    """Return the https site, which imports `custom_domain`, if its port is set; and what it gets certificates by."""
    if not settings.domains_https_port:
        return ""
    port = settings.domains_keys_port
    return Template(_SITES.read_text()).substitute(
        bind=settings.bind,
        https_port=settings.domains_https_port,
        keys_port=port,
        page_domains="|".join(map(re.escape, page_addresses(settings.pages_url))),
        getter=f"http://{GETTER_USER}:{getter_secret(settings.secret_key)}@127.0.0.1:{port}/certificate",
        api=f"unix/{run_dir}/api.sock",
    )


def getter_secret(secret_key: str) -> str:
    """Return the secret with which the edge asks for private keys; derived, as that of `common.edge_header`."""
    return hmac.new(secret_key.encode(), b"edge-certificates", hashlib.sha256).hexdigest()
