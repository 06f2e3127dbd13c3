"""The origin of a request, as audit entries store it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest

from common.edge_header import VARIABLE, edge_facts

USER_AGENT_LENGTH = 255


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """The client's address and User-Agent; empty if a request has none, and for the platform's own actions."""

    ip_address: str = ""
    user_agent: str = ""


NO_ORIGIN = RequestOrigin()


def request_origin(request: HttpRequest) -> RequestOrigin:
    """Return the origin of a request that came through the edge. DRF's requests pass their `_request` through as well.

    The address is empty if the edge's header is not as the edge made it, and the peer's if there is none.
    """
    address = _address(request.META)
    return RequestOrigin(
        address if _is_address(address) else "", request.META.get("HTTP_USER_AGENT", "")[:USER_AGENT_LENGTH]
    )


def _address(meta: Mapping[str, str]) -> str:
    if VARIABLE not in meta:
        return meta.get("REMOTE_ADDR", "")
    facts = edge_facts(meta[VARIABLE], settings.SECRET_KEY)
    return client_address(facts.forwarded) if facts else ""


def client_address(forwarded: str) -> str:
    """Return the client's address from `EdgeFacts.forwarded`.

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
