"""Rates of the requests that ask name servers, which belong to others."""

from __future__ import annotations

from common.throttling import RedisThrottle


class DnsThrottle(RedisThrottle):
    """Checks, connections and renewals, before each of which the DNS is asked, together."""

    scope = "domains-dns"
    limit = 30
    window_seconds = 60
    fail_open = False
