"""The part of Caddy's configuration at which other machines join, if that was opened. Imports no Django."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Protocol
from urllib.parse import urlsplit

from common.private_network import CERTIFICATE, KEY, network_folder, stored_address

_SITE = Path(__file__).with_name("Join.template")


class JoinSettings(Protocol):
    """The settings of the platform from which the site is made."""

    state: Path
    base_url: str
    private_port: int
    body_limit_bytes: int


def join_site(settings: JoinSettings, run_dir: Path, forwarded: str) -> str:
    """Return the site; empty if nothing was opened. `forwarded`: what removes a client's own forwarding headers."""
    address = stored_address(settings.state)
    if not address:
        return ""
    folder = network_folder(settings.state)
    return Template(_SITE.read_text()).substitute(
        address=address,
        port=settings.private_port,
        certificate=folder / CERTIFICATE,
        key=folder / KEY,
        base_host=urlsplit(settings.base_url).hostname,
        forwarded=forwarded,
        body_limit=settings.body_limit_bytes,
        api=f"unix/{run_dir}/api.sock",
    )
