"""Delivery from a store that speaks S3.

Conditions are decided here, by the tag of the content; the rest is signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from cdn.storage.keys import checked_key
from cdn.storage.stores import store_file

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# Time from the signature to the store's first byte.
SECONDS = 60
_SIGNED = {
    "X-Amz-Algorithm": "X-Cdn-Algorithm",
    "X-Amz-Credential": "X-Cdn-Credential",
    "X-Amz-Date": "X-Cdn-Date",
    "X-Amz-Expires": "X-Cdn-Expires",
    "X-Amz-SignedHeaders": "X-Cdn-Signed-Headers",
    "X-Amz-Signature": "X-Cdn-Signature",
}


def signed_answer(key: str, environ: WSGIEnvironment) -> tuple[int, list[tuple[str, str]]]:
    """Return status and headers by which the edge answers a request for a key."""
    tag = f'"{checked_key(key)[1][:32]}"'
    headers = [("ETag", tag)]
    if "HTTP_IF_MATCH" in environ and not _names(environ["HTTP_IF_MATCH"], tag, weak=False):
        return 412, []
    if "HTTP_IF_NONE_MATCH" in environ and _names(environ["HTTP_IF_NONE_MATCH"], tag, weak=True):
        return 304, headers
    if environ.get("HTTP_IF_RANGE", tag).strip() != tag:
        headers.append(("X-Cdn-Range", "no"))
    method = "HEAD" if environ.get("HTTP_X_CDN_METHOD") == "HEAD" else "GET"
    place = urlsplit(store_file().signed_url(key, SECONDS, method))
    query = dict(parse_qsl(place.query))
    signed = [(header, query[name]) for name, header in _SIGNED.items()]
    return 200, [*headers, ("X-Cdn-Object", place.path), *signed]


def _names(value: str, tag: str, *, weak: bool) -> bool:
    """Return whether a list of tags names this one (RFC 9110, 13.1)."""
    given = [part.strip() for part in value.split(",")]
    return "*" in given or tag in given or (weak and f"W/{tag}" in given)
