"""The private address at which other machines reach the database, Redis and joins of this one, with its certificates.

All of it lies in `$STATE/network`, which the first `make host-token` makes. Imports no Django.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = "network"
# Written last: if it is there, everything else is.
ADDRESS = "address"
AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
CERTIFICATE, KEY = "server.pem", "server.key"


def network_folder(state: Path) -> Path:
    """Return the folder of an instance's private network; it need not exist."""
    return state / FOLDER


def stored_address(state: Path) -> str:
    """Return the IPv4 address that was opened to other machines; empty: nothing was."""
    try:
        return (network_folder(state) / ADDRESS).read_text().strip()
    except FileNotFoundError:
        return ""
