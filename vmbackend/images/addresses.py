"""Restriction of the registries that a user's image name may address."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from vmbackend.errors import ImageUnreachable
from vmbackend.images.types import ImageSettings


def require_public(domain: str, settings: ImageSettings) -> None:
    """Raise ImageUnreachable for a registry on a private, loopback or link-local address, unless a setting allows it.

    Without this, image references could be used to probe the operator's network. A name that does not resolve passes,
    as skopeo reports that better. skopeo resolves again, so a name whose address changes in between passes; it then
    reaches a registry client whose responses are not shown to the user.
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
