"""What the DNS says of a domain: records of every kind, and hostile answers."""

from __future__ import annotations

import time
from typing import Any

import dns.resolver
import pytest
from django.conf import settings
from dnslib import QTYPE, RR, TXT, DNSRecord

import outbound.names
from domains.check import DomainCheck, check_domain, reason_not_here
from domains.names import LONGEST, NameRefused, custom_name
from tests.domains.zone import EDGE, EDGE_ADDRESS, Zone

NAME, TARGET = "www.example.com", "pg_2222222222222222"


def checked(**options: Any) -> DomainCheck:
    return check_domain(NAME, TARGET, **options)


def test_a_cname_and_the_txt_record_verify_a_domain(zone: Zone) -> None:
    zone.point(NAME)
    zone.prove(NAME, TARGET)
    found = checked()
    assert (found.verified, found.errors) == (True, [])
    assert (found.cname.expected, found.cname.actual, found.cname.ok) == (EDGE, EDGE, True)
    assert (found.ownership.host, found.ownership.expected) == (f"_platform.{NAME}", f"verify={TARGET}")
    assert found.ownership.actual == f"verify={TARGET}"
    assert set(zone.questions) == {(NAME, "CNAME"), (f"_platform.{NAME}", "TXT")}


def test_case_and_dots_of_records_do_not_matter(zone: Zone) -> None:
    zone.set(NAME, CNAME="EDGE.Platform.Example.")
    zone.set(f"_platform.{NAME}", TXT=f" verify={TARGET} ")
    assert checked().verified


def test_records_that_are_missing_are_named(zone: Zone) -> None:
    found = checked()
    assert (found.verified, found.cname.actual, found.ownership.actual) == (False, None, None)
    assert [NAME in found.errors[1], f"_platform.{NAME}" in found.errors[0], len(found.errors)] == [True, True, 2]


def test_what_was_found_instead_is_shown(zone: Zone) -> None:
    zone.set(NAME, CNAME="elsewhere.example.net.")
    zone.set(f"_platform.{NAME}", TXT=["v=spf1 -all", "verify=pg_other"])
    found = checked()
    assert (found.cname.actual, found.ownership.actual) == ("elsewhere.example.net", "verify=pg_other")
    assert found.proofs == {"pg_other"}
    assert not found.verified


@pytest.mark.parametrize(
    "text", [f"verify={TARGET}2", f"VERIFY={TARGET}", f"verify= {TARGET}", TARGET, f"xverify={TARGET}"]
)
def test_only_the_exact_value_is_a_proof(zone: Zone, text: str) -> None:
    zone.point(NAME)
    zone.set(f"_platform.{NAME}", TXT=text)
    assert not checked().ownership.ok


@pytest.mark.parametrize(
    ("addresses", "ok"),
    [([EDGE_ADDRESS], True), ([EDGE_ADDRESS, "192.0.2.9"], False), (["192.0.2.9"], False), (["127.0.0.1"], False)],
)
def test_an_apex_has_the_addresses_of_the_edge_and_no_others(zone: Zone, addresses: list[str], ok: bool) -> None:
    zone.set("example.com", A=addresses)
    zone.prove("example.com", TARGET)
    found = check_domain("example.com", TARGET)
    assert (found.verified, found.cname.actual) == (ok, ", ".join(addresses))


def test_ipv6_addresses_are_compared_in_any_spelling(zone: Zone, env: Any) -> None:
    env(edge_addresses=(EDGE_ADDRESS, "2001:db8::7"))
    zone.set("example.com", A=EDGE_ADDRESS, AAAA="2001:0db8:0:0::0007")
    assert check_domain("example.com", TARGET).cname.ok


def test_the_addresses_of_the_edge_are_looked_up_where_none_are_set(zone: Zone, env: Any) -> None:
    env(edge_addresses=())
    zone.set("example.com", A="192.0.2.50")
    assert not check_domain("example.com", TARGET).cname.ok
    zone.set(EDGE, A="192.0.2.50")
    assert check_domain("example.com", TARGET).cname.ok


def test_www_is_looked_up_where_it_is_wanted(zone: Zone) -> None:
    zone.set("example.com", A=EDGE_ADDRESS)
    zone.prove("example.com", TARGET)
    assert check_domain("example.com", TARGET).verified
    found = check_domain("example.com", TARGET, include_www=True)
    assert (found.verified, len(found.errors)) == (False, 1)
    zone.set("www.example.com", CNAME="example.com.", A=EDGE_ADDRESS)
    assert check_domain("example.com", TARGET, include_www=True).verified


def test_a_chain_of_cnames_leads_to_the_edge(zone: Zone) -> None:
    zone.set(NAME, CNAME="a.example.net.")
    zone.set("a.example.net", CNAME="b.example.net.")
    zone.point("b.example.net")
    assert checked().cname.ok


@pytest.mark.parametrize("length", [1, 2, 30])
def test_circles_and_endless_chains_of_cnames_end(zone: Zone, length: int) -> None:
    for number in range(length):
        following = NAME if number == length - 1 and length < 30 else f"n{number + 1}.example.net"
        zone.set(NAME if number == 0 else f"n{number}.example.net", CNAME=f"{following}.")
    began = time.monotonic()
    assert not checked().cname.ok
    assert time.monotonic() - began < 5
    assert len(zone.questions) < 40


def test_name_servers_that_do_not_answer_cost_a_bounded_time(zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domains.check.SECONDS", 0.6)
    monkeypatch.setattr("outbound.dns_questions.QUESTION_SECONDS", 0.4)
    zone.seconds = 2.0
    began = time.monotonic()
    found = checked(include_www=True)
    assert time.monotonic() - began < 2.0
    assert not found.verified
    assert len(found.errors) == 3
    assert all("answer" in sentence for sentence in found.errors)


def test_an_error_of_the_name_servers_is_no_missing_record(zone: Zone) -> None:
    zone.answer = lambda request: _with_code(request, 2)
    assert [("no usable answer" in error) for error in checked().errors] == [True, True]


def _with_code(request: DNSRecord, code: int) -> DNSRecord:
    reply = request.reply()
    reply.header.rcode = code
    return reply


def test_huge_answers_are_read_in_part(zone: Zone) -> None:
    """By TCP, as they do not fit into a datagram."""

    def huge(request: DNSRecord) -> DNSRecord:
        reply = request.reply()
        if request.q.qtype == QTYPE.TXT:
            for number in range(900):
                reply.add_answer(RR(request.q.qname, QTYPE.TXT, rdata=TXT(f"verify=pg_{number}"), ttl=0))
        return reply

    zone.answer = huge
    found = checked()
    assert 0 < len(found.proofs) <= 64


def test_texts_that_are_long_or_not_utf8_prove_nothing(zone: Zone) -> None:
    def odd(request: DNSRecord) -> DNSRecord:
        reply = request.reply()
        if request.q.qtype == QTYPE.TXT:
            parts = [b"verify=", TARGET.encode()]
            for texts in ([b"\xff\xfe" + parts[0] + parts[1]], [b"a" * 255] * 3, [*parts, b"x" * 250]):
                reply.add_answer(RR(request.q.qname, QTYPE.TXT, rdata=TXT(texts), ttl=0))
        return reply

    zone.answer = odd
    found = checked()
    assert (found.ownership.ok, len(found.proofs)) == (False, 0)
    assert found.ownership.actual is not None
    assert len(found.ownership.actual) <= 255


def test_a_value_in_several_strings_is_one(zone: Zone) -> None:
    def cut(request: DNSRecord) -> DNSRecord:
        reply = request.reply()
        if request.q.qtype == QTYPE.TXT:
            reply.add_answer(RR(request.q.qname, QTYPE.TXT, rdata=TXT([b"verify=", TARGET.encode()]), ttl=0))
        return reply

    zone.answer = cut
    assert checked().ownership.ok


def test_records_of_other_names_in_an_answer_do_not_count(zone: Zone) -> None:
    def other(request: DNSRecord) -> DNSRecord:
        reply = request.reply()
        reply.add_answer(RR("_platform.evil.example", QTYPE.TXT, rdata=TXT(f"verify={TARGET}"), ttl=0))
        return reply

    zone.answer = other
    assert not checked().ownership.ok


def test_without_a_setting_the_hosts_own_resolver_is_asked(
    zone: Zone, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone.point(NAME)
    own = dns.resolver.Resolver(configure=False)
    own.nameservers, own.port = ["127.0.0.1"], int(settings.ENV.dns_resolvers[0].rpartition(":")[2])
    env(dns_resolvers=())
    assert not checked().cname.ok
    monkeypatch.setattr(outbound.names, "host_resolver", lambda: own)
    assert checked().cname.ok


def test_a_certificate_authority_finds_the_platform_where_the_name_leads_here(zone: Zone) -> None:
    assert NAME in str(reason_not_here(NAME))
    zone.point(NAME)
    assert reason_not_here(NAME) is None


def test_the_longest_name_that_is_accepted_can_be_proven(zone: Zone) -> None:
    longest = ".".join(["a" * 60] * 3 + ["b" * 56, "com"])
    assert len(custom_name(longest)) == LONGEST
    zone.point(longest)
    zone.prove(longest, "pg_1")
    assert check_domain(longest, "pg_1").verified
    with pytest.raises(NameRefused, match="longer than"):
        custom_name(f"a{longest}")
