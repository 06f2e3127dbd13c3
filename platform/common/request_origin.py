"""Where a request comes from, as audit entries store it."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest

USER_AGENT_LENGTH = 255


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The client's address and User-Agent; empty where a request has none, and for the platform's own actions."""

    ip_address: str = ""
    user_agent: str = ""


def request_origin(request: HttpRequest) -> RequestOrigin:
    """The origin of a request that came through the edge. DRF's requests pass their `_request` through as well."""
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR") or request.META.get("REMOTE_ADDR", "")
    address = client_address(forwarded)
    return RequestOrigin(
        address if _is_address(address) else "", request.META.get("HTTP_USER_AGENT", "")[:USER_AGENT_LENGTH]
    )


def client_address(forwarded: str) -> str:
    """The client's address from the edge's X-Forwarded-For.

    Behind another proxy it is the nearest address outside of private networks: earlier entries are the client's claims.
    """
    hops = [hop.strip() for hop in forwarded.split(",")]
    if not settings.ENV.behind_proxy:
        return hops[-1]
    return next((hop for hop in reversed(hops) if _is_global(hop)), hops[0])


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_global(text: str) -> bool:
    return _is_address(text) and not ip_address(text).is_private
