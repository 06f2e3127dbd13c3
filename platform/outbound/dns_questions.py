"""Questions to name servers about a domain that a user names, all within one deadline, in the calling thread.

The zone may be the user's own, so its answers are hostile: they may come late, be very large, or point in a circle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import dns.exception
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver
from dns.rdatatype import RdataType

from outbound import names

# The time of one question, so that a server which does not answer leaves time for the others.
QUESTION_SECONDS = 3.0
# Beyond these the rest of an answer is not looked at.
MAX_RECORDS = 64
MAX_TEXT = 255
MAX_ALIASES = 8


class NoAnswer(Exception):
    """The name servers did not answer usably in time. The message is a sentence for the user."""


class DnsQuestions:
    """`servers`: those of `server_place`; none: this host's own. The deadline begins now."""

    def __init__(self, seconds: float, servers: Sequence[tuple[str, int]] = ()) -> None:
        self._until = time.monotonic() + seconds
        self._servers = servers

    def texts(self, name: str) -> list[str]:
        """Return the TXT records of a name, each as one text; none if there is no such name. Raise NoAnswer."""
        found = []
        for record in self._records(name, dns.rdatatype.TXT):
            joined = b"".join(record.strings)[: MAX_TEXT + 1]
            if len(joined) <= MAX_TEXT:
                found.append(joined.decode("utf-8", "replace").strip())
        return found

    def aliases(self, name: str, *, until: str) -> list[str]:
        """Return the names that CNAME records lead to, in order, in lower case, up to `until` or a circle. Raise
        NoAnswer.
        """
        found: list[str] = []
        while len(found) < MAX_ALIASES:
            records = self._records(name, dns.rdatatype.CNAME)
            if not records:
                break
            name = _text(records[0].target)
            if name in found:
                break
            found.append(name)
            if name == until:
                break
        return found

    def addresses(self, name: str) -> list[str]:
        """Return IPv4 and IPv6 addresses in their shortest form. Raise NoAnswer."""
        kinds = (dns.rdatatype.A, dns.rdatatype.AAAA)
        found = [str(ip_address(record.address)) for kind in kinds for record in self._records(name, kind)]
        return list(dict.fromkeys(found))

    def _records(self, name: str, kind: RdataType) -> list[Any]:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NoAnswer("The name servers took too long to answer.")
        try:
            # The dot at the end: no search domain is added.
            answer = self._resolver().resolve(
                f"{name}.", kind, lifetime=min(left, QUESTION_SECONDS), search=False, raise_on_no_answer=False
            )
        except dns.resolver.NXDOMAIN:
            return []
        except dns.exception.Timeout as error:
            raise NoAnswer(f"The name servers of {name} did not answer in time.") from error
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise NoAnswer(f"The name servers gave no usable answer for {name}.") from error
        return list(answer.rrset or ())[:MAX_RECORDS]

    def _resolver(self) -> dns.resolver.Resolver:
        """Return a resolver without a cache: an answer is to be as fresh as the resolver has it."""
        if not self._servers:
            return names.host_resolver()
        made = dns.resolver.Resolver(configure=False)
        made.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in self._servers]
        return made


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()
