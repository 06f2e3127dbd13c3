"""Headers of proxied requests and responses: what each side gets of the other's."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workspaces.runtime.proxy.targets import TARGET_HEADER, Headers

# They concern one connection, or one hop (RFC 9110, 7.6.1); the server that reads each makes its own.
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"http2-settings",
    }
)  # fmt: skip
# The platform has answered `expect`; `host` is the target's, for servers that look at it.
OWN = frozenset({b"host", b"expect", b"x-edge"})
OWN_PREFIX = b"x-edge-"
# In the answer they would act on the origin of the platform, or of other programs there.
ON_ORIGIN = frozenset(
    {
        b"set-cookie", b"set-cookie2", b"service-worker-allowed", b"clear-site-data", b"strict-transport-security",
        b"alt-svc", b"nel", b"report-to", b"reporting-endpoints",
    }
)  # fmt: skip
COOKIE = b"set-cookie"
# A cookie that is kept is that of its host alone.
_DOMAIN = re.compile(rb";\s*domain\s*=[^;]*", re.IGNORECASE)
# Others are in their place: of the platform's server, or added here.
REPLACED = frozenset(
    {
        b"date", b"server", b"x-request-id", b"x-content-type-options", b"content-security-policy",
        b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers",
    }
)  # fmt: skip
ADDED = [
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Content-Security-Policy", b"sandbox allow-scripts allow-forms"),
]


def guest_headers(headers: Headers, *, token: str, cookies: frozenset[str] = frozenset()) -> list[tuple[bytes, bytes]]:
    """Return the headers of a client that the server in the guest gets. `cookies` are the names of the platform's own.

    No header that has the token in it gets there, whatever its name is.
    """
    hops, secret = _hop_names(headers), token.encode("latin-1", "replace")
    passed = []
    if _is_chunked(headers):
        hops |= {b"content-length"}
        passed.append((b"Transfer-Encoding", b"chunked"))
    for name, value in headers:
        low = name.lower()
        if low in hops or low in OWN or low.startswith(OWN_PREFIX) or TARGET_HEADER.fullmatch(low):
            continue
        if low == b"cookie":
            value = _passed_cookies(value, cookies)  # noqa: PLW2901
        if (value and secret and secret in value) or (low == b"cookie" and not value):
            continue
        passed.append((name, value))
    return passed


def client_headers(headers: Headers, *, status: int, keeps_cookies: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer that the client gets."""
    hops = _hop_names(headers)
    left_out = hops | REPLACED | (ON_ORIGIN - {COOKIE} if keeps_cookies else ON_ORIGIN)
    if _is_chunked(headers) or status == 204:
        left_out |= {b"content-length"}
    kept = [(name, value) for name, value in headers if name.lower() not in left_out]
    return [(name, _DOMAIN.sub(b"", value) if name.lower() == COOKIE else value) for name, value in kept] + ADDED


def client_trailers(trailers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers after a body that the client gets."""
    left_out = HOP_BY_HOP | REPLACED | ON_ORIGIN | {b"content-length"}
    return [(name, value) for name, value in trailers if name.lower() not in left_out]


def _is_chunked(headers: Headers) -> bool:
    return any(name.lower() == b"transfer-encoding" for name, _ in headers)


def _hop_names(headers: Headers) -> frozenset[bytes]:
    """Return the names of headers of one hop, with those that it names itself."""
    named = [value.lower() for name, value in headers if name.lower() == b"connection"]
    return HOP_BY_HOP | _words(named)


def _words(values: Iterable[bytes]) -> frozenset[bytes]:
    # These say how long the body is, and what it is for: no server takes them for a hop's.
    kept = {b"content-length", b"host", b"content-type"}
    return frozenset(word.strip() for value in values for word in value.split(b",")) - kept


def _passed_cookies(value: bytes, cookies: frozenset[str]) -> bytes:
    pairs = [pair.strip() for pair in value.split(b";")]
    return b"; ".join(pair for pair in pairs if pair.partition(b"=")[0].decode("latin-1") not in cookies)
