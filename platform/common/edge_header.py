"""The edge's facts about a request, in one header: `X-Edge: SECRET HOST ADDRESSES SECRET`.

A client's header in another spelling (`X_Forwarded_For`) becomes the same WSGI variable as the edge's own, and servers
join the values of both. The edge drops such headers; this one is invalid if anything was joined to either end of it.
Imports no Django.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache

HEADER = "X-Edge"
# As a WSGI variable, and so in Django's `request.META`.
VARIABLE = "HTTP_X_EDGE"


@dataclass(frozen=True, slots=True)
class EdgeFacts:
    """`host`: the name that the client asked for. `forwarded`: the addresses of the request's way, separated by commas;
    the client's own claims come first, what the edge saw last.
    """

    host: str
    forwarded: str


@lru_cache(maxsize=4)
def edge_secret(secret_key: str) -> str:
    """Return the edge's secret, derived from the secret key so that nothing else must be stored or configured."""
    return hmac.new(secret_key.encode(), b"edge", hashlib.sha256).hexdigest()


def edge_facts(value: str, secret_key: str) -> EdgeFacts | None:
    """Return the header's content; None if the edge did not make it."""
    secret = edge_secret(secret_key).encode()
    first, _, rest = value.partition(" ")
    content, _, last = rest.rpartition(" ")
    if not (hmac.compare_digest(first.encode(), secret) and hmac.compare_digest(last.encode(), secret)):
        return None
    # What a client could hide in a host name after a space comes before the addresses that count, the last ones.
    host, _, forwarded = content.partition(" ")
    return EdgeFacts(host, forwarded)
