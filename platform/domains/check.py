"""The check of a domain's DNS: whether the domain leads here, and whose it is. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address

from django.conf import settings
from django.utils import timezone

from common.connections import release_connection
from domains.models import PROOF_HOST, WWW
from outbound.dns_questions import DnsQuestions, NoAnswer
from outbound.names import NameFailed, listed_addresses
from outbound.urls import server_place

# The time of a whole check.
SECONDS = 10.0
EDGE_SECONDS = 3.0
PROOF = "verify="


@dataclass(slots=True)
class RecordCheck:
    """`host`: the name that was asked for. `actual`: what it has in place of `expected`; null: nothing."""

    expected: str
    host: str
    actual: str | None = None
    ok: bool = False


@dataclass(slots=True)
class DomainCheck:
    """The result (wire contract, section 5). `asked_at`: before the first question. `proofs`: ids in TXT records."""

    domain: str
    cname: RecordCheck
    ownership: RecordCheck
    asked_at: datetime
    www_ok: bool = True
    proofs: frozenset[str] = frozenset()
    errors: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        return self.cname.ok and self.ownership.ok and self.www_ok


def check_domain(name: str, target_id: str, *, include_www: bool = False) -> DomainCheck:
    """Ask for the records of a domain, within some ten seconds. Raise nothing: what cannot be found is in `errors`.

    No connection to the database is held until the answers are there: name servers that do not answer would soon have
    all of the pool.
    """
    ownership = RecordCheck(f"{PROOF}{target_id}", PROOF_HOST + name)
    found = DomainCheck(name, _here(name), ownership, timezone.now())
    questions = _questions()
    release_connection()
    _check_ownership(found, questions, target_id)
    _check_address(found, questions, found.cname)
    if include_www:
        www = _here(WWW + name)
        _check_address(found, questions, www)
        found.www_ok = www.ok
    return found


def _here(name: str) -> RecordCheck:
    return RecordCheck(settings.ENV.edge_host, name)


def _questions() -> DnsQuestions:
    return DnsQuestions(SECONDS, [server_place(place) for place in settings.ENV.dns_resolvers])


def _check_ownership(found: DomainCheck, questions: DnsQuestions, target_id: str) -> None:
    record = found.ownership
    try:
        texts = questions.texts(record.host)
    except NoAnswer as error:
        found.errors.append(str(error))
        return
    found.proofs = frozenset(text.removeprefix(PROOF) for text in texts if text.startswith(PROOF))
    record.ok = target_id in found.proofs
    shown = sorted(texts, key=lambda text: (text != record.expected, not text.startswith(PROOF)))
    record.actual = shown[0] if shown else None
    if not record.ok:
        found.errors.append(f"There is no TXT record {record.host} with the value {record.expected}.")


def _check_address(found: DomainCheck, questions: DnsQuestions, record: RecordCheck) -> None:
    try:
        record.actual, record.ok = _leads_to(questions, record.host)
    except NoAnswer as error:
        found.errors.append(str(error))
        return
    if not record.ok:
        actual = f"leads to {record.actual}" if record.actual else "has neither a CNAME nor an address record"
        found.errors.append(
            f"{record.host} {actual}; it must be a CNAME of {record.expected}, or have the addresses of that name."
        )


def _leads_to(questions: DnsQuestions, name: str) -> tuple[str | None, bool]:
    """Return where a name leads, and whether that is the edge. Raise NoAnswer.

    A domain without a label before it cannot be a CNAME: its addresses must be the edge's own, all of them.
    """
    aliases = questions.aliases(name, until=settings.ENV.edge_host)
    if settings.ENV.edge_host in aliases:
        return settings.ENV.edge_host, True
    addresses = questions.addresses(name)
    actual = aliases[0] if aliases else ", ".join(addresses[:8]) or None
    return actual, bool(addresses) and set(addresses) <= edge_addresses()


def edge_addresses() -> set[str]:
    """PLATFORM_EDGE_ADDRESSES, else what PLATFORM_EDGE_HOST leads to; empty if it leads nowhere."""
    env = settings.ENV
    if env.edge_addresses:
        return set(env.edge_addresses)
    try:
        return {str(ip_address(env.edge_host))}
    except ValueError:
        pass
    try:
        return {str(ip_address(found)) for found in _resolved_edge()}
    except (NameFailed, NoAnswer):
        return set()


def _resolved_edge() -> list[str]:
    env = settings.ENV
    if env.dns_resolvers:
        servers = [server_place(place) for place in env.dns_resolvers]
        return DnsQuestions(EDGE_SECONDS, servers).addresses(env.edge_host)
    return listed_addresses(env.edge_host, EDGE_SECONDS)


def reason_not_here(name: str) -> str | None:
    """Return why a certificate authority would not find this platform under a name; None if it would.

    A handler of `certificates.hooks.dns_points_here`; takes up to some ten seconds.
    """
    found = DomainCheck(name, _here(name), RecordCheck("", name), timezone.now())
    release_connection()
    _check_address(found, _questions(), found.cname)
    return None if found.cname.ok else found.errors[0]
