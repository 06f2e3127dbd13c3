"""Answers to the edge about files that it has no link of, given before Django: `/internal/edge/cdn`.

The path is in `X-Cdn-Path`. 200: with the local store, the link was made; with S3, the headers carry an address that is
signed for this request. 402: the file was never delivered before, and the owner's credits are used up. 404: nothing is
delivered at this address. The edge routes nothing from outside to this path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections

from cdn.delivery.addresses import Address, address_of
from cdn.delivery_views.signed import signed_answer
from cdn.services.deliveries import file_deliver
from cdn.storage.errors import StorageUnavailable
from common.edge_header import VARIABLE, edge_facts
from common.errors import QuotaExceeded
from edge.addresses import cdn_address

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/internal/edge/cdn"
_REASONS = {
    200: "OK", 304: "Not Modified", 402: "Payment Required", 404: "Not Found", 412: "Precondition Failed",
    503: "Service Unavailable",
}  # fmt: skip
Answer = tuple[int, list[tuple[str, str]]]


class CdnPath:
    """WSGI middleware that answers the edge's requests for files."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            return self._inner(environ, start_response)
        status, headers = _answer_of(environ)
        start_response(f"{status} {_REASONS[status]}", [*headers, ("Content-Length", "0")])
        return [b""]


def _answer_of(environ: WSGIEnvironment) -> Answer:
    facts = edge_facts(environ.get(VARIABLE, ""), settings.SECRET_KEY)
    address = address_of(environ.get("HTTP_X_CDN_PATH", ""))
    if address is None or facts is None or not _is_own_host(facts.host):
        return 404, []
    try:
        return _delivery(address, environ)
    except QuotaExceeded:
        return 402, []
    except (DatabaseError, InterfaceError, StorageUnavailable, OSError):
        return 503, []
    finally:
        close_old_connections()


def _is_own_host(host: str) -> bool:
    """Return whether the host, which Caddy names without a port, is the CDN's."""
    return host.lower().removesuffix(".") == cdn_address(settings.ENV.cdn_url).host


def _delivery(address: Address, environ: WSGIEnvironment) -> Answer:
    key = file_deliver(address)
    if not key:
        return 404, []
    if not settings.ENV.cdn_s3_bucket:
        return 200, []
    return signed_answer(key, environ)
