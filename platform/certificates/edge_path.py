"""The answer to the edge's question when a connection begins: the certificate and private key of a name, before Django.

The answer is 200 with both as PEM for a name whose certificate is active, and 204, which Caddy does not log, for every
other name. Only a request with the edge's own secret is answered; the edge sends it through an address of its own on
this host (edge/CertificateSites.template).
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections

from certificates.selectors import served_certificate
from edge.certificate_sites import GETTER_USER, getter_secret

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATH = "/internal/edge/certificate"
_NAME = re.compile(r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+")
_REASONS = {200: "OK", 204: "No Content", 404: "Not Found", 503: "Service Unavailable"}


class CertificatePath:
    """The WSGI middleware of the path."""

    def __init__(self, inner: WSGIApplication) -> None:
        self._inner = inner
        given = f"{GETTER_USER}:{getter_secret(settings.SECRET_KEY)}".encode()
        self._wanted = b"Basic " + base64.b64encode(given)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            return self._inner(environ, start_response)
        given = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1")
        is_edge = environ.get("REQUEST_METHOD") == "GET" and hmac.compare_digest(given, self._wanted)
        status, body = _answer_of(environ.get("QUERY_STRING", "")) if is_edge else (404, b"")
        headers = [("Content-Type", "application/x-pem-file"), ("Cache-Control", "no-store")]
        start_response(f"{status} {_REASONS[status]}", [*headers, ("Content-Length", str(len(body)))])
        return [body]


def _answer_of(query: str) -> tuple[int, bytes]:
    name = parse_qs(query[:1000]).get("server_name", [""])[0].lower().removesuffix(".")
    if len(name) > 253 or not _NAME.fullmatch(name):
        return 204, b""
    try:
        found = served_certificate(name).encode()
    except (DatabaseError, InterfaceError, InvalidToken):
        return 503, b""
    finally:
        close_old_connections()
    return (200, found) if found else (204, b"")
