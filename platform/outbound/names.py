"""Names that users give, looked up within a deadline, in the calling thread.

Not by getaddrinfo: it asks each name server several times (some 30 s with three of them), and its thread cannot be
stopped, so names whose servers never answer would take one thread after another. It also has sources that are not the
internet's: names of this host, of the local network, search domains.
"""

from __future__ import annotations

import time
from itertools import chain, zip_longest
from pathlib import Path

import dns.exception
import dns.rdatatype
import dns.resolver

_HOSTS_FILE = Path("/etc/hosts")
_MAX_ADDRESSES = 32


class NameFailed(Exception):
    """A name without an address, or without an answer in time. The message is for logs."""


def dns_addresses(host: str, seconds: float) -> list[str]:
    """Return the addresses of a name from the DNS, within `seconds`. Raise NameFailed.

    IPv4 and IPv6 by turns, as this host may have one of them only and not all are tried. If one of the two questions
    gets no answer, the addresses of the other are returned.
    """
    until = time.monotonic() + seconds
    try:
        resolver = host_resolver()
        first, failure = _records(resolver, host, dns.rdatatype.A, seconds / 2)
        second, other_failure = _records(resolver, host, dns.rdatatype.AAAA, max(until - time.monotonic(), 0.0))
    except (dns.exception.DNSException, ValueError) as error:
        raise NameFailed("no name server") from error
    found = [address for address in chain(*zip_longest(first, second)) if address]
    if not found:
        raise NameFailed(f"{host} has no address") from failure or other_failure
    if len(found) > _MAX_ADDRESSES:
        raise NameFailed(f"{host} has {len(found)} addresses")
    return list(dict.fromkeys(found))


def listed_addresses(host: str, seconds: float) -> list[str]:
    """Return the same for a name of the operator's: those of this host's hosts file, if it has the name. Raises
    NameFailed.
    """
    return _of_hosts_file(host) or dns_addresses(host, seconds)


def host_resolver() -> dns.resolver.Resolver:
    """Return a resolver with this host's name servers as they are now: reading them takes some 20 us."""
    return dns.resolver.Resolver()


def _records(
    resolver: dns.resolver.Resolver, host: str, kind: dns.rdatatype.RdataType, seconds: float
) -> tuple[list[str], Exception | None]:
    """Return the addresses of one kind, or why there is no answer. A trailing dot: no search domain is added."""
    try:
        answer = resolver.resolve(f"{host}.", kind, lifetime=seconds, search=False, raise_on_no_answer=False)
    except (dns.exception.DNSException, OSError) as error:
        return [], error
    return [str(record.address) for record in answer.rrset or ()], None


def _of_hosts_file(host: str) -> list[str]:
    try:
        lines = _HOSTS_FILE.read_text(errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.partition("#")[0].lower().split() for line in lines]
    return [names[0] for names in fields if host in names[1:]]
