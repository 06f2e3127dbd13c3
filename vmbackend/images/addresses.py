"""Which registries a user's image name may make this host talk to."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from vmbackend.errors import ImageUnreachable
from vmbackend.images.types import ImageSettings


def require_public(domain: str, settings: ImageSettings) -> None:
    """Raise ImageUnreachable for a registry on a private, loopback or link-local address that no setting allows.

    A name is anybody's to choose, so without this an image reference would probe the operator's own network. A name
    that does not resolve passes: skopeo says so better. skopeo resolves again, so a name that changes its address in
    between gets through; it then meets a registry client and nothing of its answer reaches the user.
    """
    if domain in {*settings.insecure_registries, *settings.private_registries, *settings.registry_mirrors.values()}:
        return
    host = urlsplit(f"//{domain}").hostname or domain
    try:
        found = {str(info[4][0]).split("%")[0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return
    if any(not ip_address(address).is_global for address in found):
        raise ImageUnreachable(
            f"The registry {domain} is not on a public address; the platform's operator can allow it by a setting."
        )
