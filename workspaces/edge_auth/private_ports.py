"""Requests to private ports: who shows a link's secret is let in.

A secret comes in a link's address, as a bearer, or in the cookie that the address sets. Of these parts of a request the
edge passes on what may contain one (edge/port_links.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from common.compiled_query import CompiledQuery
from common.errors import Unauthorized
from common.secrets_at_rest import keyed_hashes
from common.wrong_secrets import count_wrong_secret
from edge.addresses import public_address
from edge.port_links import PARAMETER, bearer_secret, cookie_name, cookie_secrets, is_secret, without_parameter
from workspaces.network.links import link_rows, link_use

# A browser has one cookie of this name; others are those of pages that want to disturb it.
MAX_COOKIES = 8
_LINKS = CompiledQuery(link_rows)


class LinkNeeded(Unauthorized):
    message = "This address is open to visitors with a link."


class LinkUnknown(LinkNeeded):
    """A secret was shown that does not open this port."""

    message = "This link is unknown, or has ended."


@dataclass(frozen=True, slots=True)
class Visit:
    """The parts of a request that may show a secret. `address`: method and target, if the target may contain one."""

    cookie: str
    authorization: str
    address: str
    is_secure: bool

    @classmethod
    def of(cls, meta: Mapping[str, Any], host: str) -> Visit:
        """Return it for a request of the edge, by its WSGI variables and the name that the visitor asked for."""
        public = public_address(settings.PUBLIC_URL)
        came_by = str(meta.get("HTTP_X_FORWARDED_PROTO", "")).partition(",")[0].strip()
        return cls(
            meta.get("HTTP_X_EDGE_COOKIE", ""),
            meta.get("HTTP_X_EDGE_AUTHORIZATION", ""),
            meta.get("HTTP_X_EDGE_ADDRESS", ""),
            # Behind a proxy that does not say it, the setting does; of a user's own domain nothing else is known.
            came_by == "https" or (public.scheme == "https" and public.label_of(host) is not None),
        )


@dataclass(frozen=True, slots=True)
class Opening:
    """A link that was opened by its address: where the visitor goes on, with a cookie."""

    location: str
    cookie: str

    def response(self) -> HttpResponse:
        headers = {"Location": self.location, "Set-Cookie": self.cookie}
        # The address without the secret is the same for everyone; this answer is not.
        return HttpResponse(
            status=303, headers={**headers, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        )


def admit_visitor(port_id: int, visit: Visit) -> Opening | None:
    """Let a visitor of a private port in. Return an Opening if the request is that of a link's address: it must not
    reach the program. Raise LinkNeeded, LinkUnknown.
    """
    method, _, target = visit.address.partition(" ")
    in_address = parse_qs(target.partition("?")[2], keep_blank_values=True).get(PARAMETER, [])
    if in_address:
        return _open_address(port_id, visit, method, target, in_address)
    bearer = bearer_secret(visit.authorization)
    cookies = cookie_secrets(visit.cookie, secure=visit.is_secure)[:MAX_COOKIES]
    shown = [bearer, *cookies] if bearer else cookies
    if not shown:
        raise LinkNeeded
    if _living_link(port_id, shown) is None:
        # A browser forgets a cookie that opens nothing any more, so that it is not counted again and again.
        raise LinkUnknown(headers={"Set-Cookie": _cookie("", 0, secure=visit.is_secure)} if cookies else None)
    return None


def _open_address(port_id: int, visit: Visit, method: str, target: str, secrets: list[str]) -> Opening:
    if method not in ("GET", "HEAD") or not target.startswith("/") or len(secrets) > 1:
        raise LinkNeeded("A link is opened by GET, with one secret in its address.")
    expires_at = _living_link(port_id, secrets) if is_secret(secrets[0]) else None
    if expires_at is None:
        raise LinkUnknown
    seconds = int((expires_at - timezone.now()).total_seconds())
    return Opening(without_parameter(target), _cookie(secrets[0], max(1, seconds), secure=visit.is_secure))


def _living_link(port_id: int, secrets: list[str]) -> datetime | None:
    """Return when the link ends by which one of these secrets opens the port, and record its use; None without one."""
    hashes = [each for secret in secrets for each in keyed_hashes(secret)]
    for port, link_id, expires_at, last_used_at in _LINKS.all_rows(hashes):
        if port == port_id:
            link_use(link_id, last_used_at)
            found: datetime = expires_at
            return found
    return None


def _cookie(secret: str, seconds: int, *, secure: bool) -> str:
    """Return the cookie as a header's value: for this host alone, and no script reads it."""
    name = cookie_name(secure=secure)
    cookie: SimpleCookie = SimpleCookie({name: secret})
    attributes: dict[str, Any] = {
        "path": "/",
        "max-age": seconds,
        "samesite": "Lax",
        "httponly": True,
        "secure": secure,
    }
    cookie[name].update(attributes)
    return cookie[name].OutputString()


@contextmanager
def wrong_links_counted(request: HttpRequest) -> Iterator[None]:
    """Within the context a secret that opens nothing counts for the address that sent it. Raise TooManyFailures in the
    place of LinkUnknown.
    """
    try:
        yield
    except LinkUnknown:
        count_wrong_secret(request)
        raise
