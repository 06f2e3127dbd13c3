"""Names that users give, looked up within a deadline, in the calling thread.

Not by getaddrinfo: it asks each name server several times (some 30 s with three of them), and its thread cannot be
stopped, so names whose servers never answer would take one thread after another. It also has sources that are not the
internet's: names of this host, of the local network, search domains.
"""

from __future__ import annotations

import time
from pathlib import Path

import dns.exception
import dns.rdatatype
import dns.resolver

_HOSTS_FILE = Path("/etc/hosts")
_MAX_ADDRESSES = 32


class NameFailed(Exception):
    """A name without an address, or without an answer in time. The message is for logs."""


def dns_addresses(host: str, seconds: float) -> list[str]:
    """The IPv4 addresses of a name, then its IPv6 addresses, from the DNS, within `seconds`.

    Raises NameFailed. Where one of the two questions gets no answer, the addresses of the other are returned.
    """
    until = time.monotonic() + seconds
    found: list[str] = []
    failure: Exception | None = None
    try:
        resolver = _resolver()
        for left, kind in ((2, dns.rdatatype.A), (1, dns.rdatatype.AAAA)):
            try:
                lifetime = max(until - time.monotonic(), 0.0) / left
                answer = resolver.resolve(f"{host}.", kind, lifetime=lifetime, search=False, raise_on_no_answer=False)
                found += [str(record.address) for record in answer.rrset or ()]
            except dns.resolver.NXDOMAIN:
                break
            except (dns.exception.DNSException, OSError) as error:
                failure = error
    except (dns.exception.DNSException, ValueError) as error:
        failure = error
    if not found:
        raise NameFailed(f"{host} has no address") from failure
    if len(found) > _MAX_ADDRESSES:
        raise NameFailed(f"{host} has {len(found)} addresses")
    return list(dict.fromkeys(found))


def listed_addresses(host: str, seconds: float) -> list[str]:
    """The same for a name of the operator's: those of this host's hosts file, if it has the name. Raises NameFailed."""
    return _of_hosts_file(host) or dns_addresses(host, seconds)


def _resolver() -> dns.resolver.Resolver:
    """With this host's name servers as they are now: reading them takes some 20 us."""
    return dns.resolver.Resolver()


def _of_hosts_file(host: str) -> list[str]:
    try:
        lines = _HOSTS_FILE.read_text(errors="replace").splitlines()
    except OSError:
        return []
    fields = [line.partition("#")[0].lower().split() for line in lines]
    return [names[0] for names in fields if host in names[1:]]
