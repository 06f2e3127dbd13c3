"""Changes of the same names at the same moment: each ends, and none is refused for how the database locks rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from django.db import connections
from dnslib import DNSRecord

from domains import claims
from domains.models import CustomDomain, DomainName, TargetKind
from domains.services import Target, domain_connect, domain_disconnect
from pages.services import page_delete, page_disable
from tests.callers import Caller
from tests.domains.zone import Zone
from tests.pages.rows import make_page
from tests.threads import run_at_once

NAME = "www.example.com"
pytestmark = pytest.mark.django_db(transaction=True)


def _disconnect(page: Any) -> None:
    domain_disconnect(domain=CustomDomain.objects.get(target_id=page.pk), actor="t")


def _delete(page: Any) -> None:
    page_delete(page=page, actor="t")


def _disable(page: Any) -> None:
    page_disable(page=page, actor="t")


def _connect_another(page: Any) -> None:
    domain_connect(target=Target(TargetKind.PAGE, page.pk, page.account), name="other.example.com", actor="t")


@pytest.mark.parametrize(
    ("change", "ended"),
    [(_disconnect, "NotConnected"), (_delete, "done"), (_disable, "done"), (_connect_another, "done")],
)
def test_a_domain_may_be_changed_while_another_target_takes_it(
    api: Caller,
    stranger: Caller,
    zone: Zone,
    files: Any,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Any], None],
    ended: str,
) -> None:
    mine = make_page(api.account, slug="mine", release=1)
    theirs = make_page(stranger.account, slug="theirs", release=1)
    for name in (NAME, f"www.{NAME}", "other.example.com"):
        zone.point(name)
        zone.prove(name, mine.pk)
    domain_connect(target=Target(TargetKind.PAGE, mine.pk, api.account), name=NAME, include_www=True, actor="t")
    zone.prove(NAME, theirs.pk)
    give, is_taking = claims._give, Event()

    def slow_give(name: str, domain: CustomDomain) -> None:
        """The name's row is locked: the other one begins, and comes as far as it can."""
        give(name, domain)
        is_taking.set()
        time.sleep(0.5)

    monkeypatch.setattr(claims, "_give", slow_give)

    def work(at: int) -> None:
        if at == 0:
            taker = Target(TargetKind.PAGE, theirs.pk, stranger.account)
            domain_connect(target=taker, name=NAME, include_www=True, actor="t")
        else:
            is_taking.wait(30)
            change(mine)

    assert run_at_once(2, work) == ["done", ended]
    held = DomainName.objects.filter(domain__target_id=theirs.pk).values_list("name", flat=True)
    assert set(held) == {NAME, f"www.{NAME}"}
    assert files.link_of(NAME) == f"../../pages/by-id/{theirs.pk}"


@pytest.mark.parametrize("route", ["domain/check", "domain"])
def test_no_connection_is_held_while_the_dns_is_asked(
    api: Caller, zone: Zone, files: Any, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """Name servers that do not answer, of a few accounts, would hold all connections of the api."""
    page = make_page(api.account, slug="site", release=1)
    zone.point(NAME)
    zone.prove(NAME, page.pk)
    of_the_request, held = connections["default"], []
    answer = zone.resolve

    def looked(request: DNSRecord, handler: Any) -> DNSRecord:
        held.append(of_the_request.connection is not None)
        return answer(request, handler)

    monkeypatch.setattr(zone, "resolve", looked)
    assert api.post(f"/pages/site/{route}", {"domain": NAME}).status_code == 200
    assert held
    assert not any(held)
