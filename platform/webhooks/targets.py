"""Whether a URL may be the target of a webhook. Names are not resolved here: each attempt checks where they lead."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from common.errors import ValidationError
from outbound.addresses import is_public


def required_host(url: str) -> str:
    """The host that a URL names. Raises ValidationError, which names `url`, for what is never connected to."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme != "https" or not host or parts.port == 0:
            raise ValueError("Give an https URL with a host.")
        if parts.username is not None or parts.password is not None:
            raise ValueError("A URL with a user name or a password is not accepted.")
        if _is_address(host) and not is_public(host):
            raise ValueError("The host is not public.")
    except ValueError as exc:
        raise ValidationError(details={"url": [str(exc)]}) from exc
    return host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
