"""Who is let in at a private port: what the edge is answered about requests with and without a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from common import wrong_secrets
from common.attempts import AttemptLimits, FailureLimit
from domains.models import CustomDomain, DomainName, TargetKind
from edge.route_cache import RouteCache
from tests.workspaces.network.edge_requests import PORT, WAKE, ask, through_fast_path
from tests.workspaces.network.link_requests import UNKNOWN, by_address, by_bearer, by_cookie, name_of, secret_of
from workspaces import last_used
from workspaces.models import Operation, PortLink, PublicPort
from workspaces.network.links import link_revoke, links_expire
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_edge_state")]


def test_without_a_link_a_private_port_answers_401(private: Callable[..., PublicPort]) -> None:
    for port in (private(), private(status=Status.SLEEPING), private(status=Status.STOPPED)):
        for path in (PORT, WAKE):
            answer = ask(name_of(port), path)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer["Cache-Control"] == "no-store"
            page = ask(name_of(port), path, Accept="text/html")
            assert (page.status_code, "visitors with a link" in page.content.decode()) == (401, True)
        assert through_fast_path(name_of(port)) == ("404", "")
    assert not Operation.objects.exists(), "nothing is woken"
    assert ask("unknown.localhost").status_code == 404


@pytest.mark.parametrize("shown", [by_cookie, by_bearer])
def test_a_link_opens_its_port(private: Callable[..., PublicPort], shown: Callable[..., dict[str, str]]) -> None:
    port = private()
    secret = secret_of(port)
    answer = ask(name_of(port), **shown(secret))
    assert (answer.status_code, answer["X-Upstream"], answer["X-Access"]) == (200, "10.200.0.9:8080", "private")
    assert through_fast_path(name_of(port), **shown(secret)) == ("200", "10.200.0.9:8080")
    PublicPort.objects.filter(pk=port.pk).update(slug="my-app")
    assert ask(f"my-app-{port.hash}.localhost", **shown(secret)).status_code == 200


def test_a_public_port_asks_for_nothing(public: Callable[..., PublicPort]) -> None:
    port = public()
    for shown in ({}, by_cookie(UNKNOWN), by_bearer(UNKNOWN), by_address(UNKNOWN)):
        answer = ask(name_of(port), **shown)
        assert (answer.status_code, "X-Access" in answer, "Set-Cookie" in answer) == (200, False, False)


def test_the_edge_keeps_no_answer_for_a_private_port(
    private: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RouteCache, "store", lambda *_: pytest.fail("it is stored"))
    port = private()
    assert through_fast_path(name_of(port), **by_cookie(secret_of(port)))[0] == "200"


@pytest.mark.parametrize("shown", [by_cookie, by_bearer, by_address])
def test_a_link_opens_no_other_port(private: Callable[..., PublicPort], shown: Callable[..., dict[str, str]]) -> None:
    port, elsewhere = private(), private()
    beside = PublicPort.objects.create(workspace=port.workspace, port=8081, access="private")
    secret = secret_of(port)
    for other in (elsewhere, beside):
        assert ask(name_of(other), **shown(secret)).status_code == 401
        assert through_fast_path(name_of(other), **shown(secret)) == ("404", "")
        # Its own link beside it opens it.
        both = by_cookie(secret, secret_of(other))
        assert ask(name_of(other), **both)["X-Upstream"] == f"10.200.0.9:{other.port}"


@pytest.mark.parametrize("shown", [by_cookie, by_bearer, by_address])
def test_a_link_that_ended_is_as_one_that_never_was(
    private: Callable[..., PublicPort], shown: Callable[..., dict[str, str]]
) -> None:
    port = private()
    revoked, expired, public, removed = (secret_of(port) for _ in range(4))
    links = list(PortLink.objects.order_by("id"))
    for secret in (revoked, expired, removed):
        assert ask(name_of(port), **shown(secret)).status_code in (200, 303)
    link_revoke(workspace=port.workspace, actor="t", port=8080, link_id=links[0].pk)
    PortLink.objects.filter(pk=links[1].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    links[3].delete()
    for _ in range(2):
        answers = [
            ask(name_of(port), X_Request_ID="same", **shown(each)) for each in (UNKNOWN, revoked, expired, removed)
        ]
        seen = [(each.status_code, dict(each.items()), each.content) for each in answers]
        assert all(each == seen[0] for each in seen)
        assert seen[0][0] == 401
        links_expire()
    assert ask(name_of(port), **shown(public)).status_code in (200, 303)


def test_the_other_rules_of_a_port_hold_for_visitors_with_a_link(private: Callable[..., PublicPort]) -> None:
    for fields, status in (
        ({"public_access": False}, 404),
        ({"ingress_ports": [80]}, 404),
        ({"ingress": ["198.51.100.0/24"]}, 403),
        ({"status": Status.SLEEPING}, 202),
        ({"status": Status.STOPPED}, 503),
    ):
        port = private(**fields)
        assert ask(name_of(port), **by_cookie(secret_of(port))).status_code == status


def test_wrong_secrets_are_counted_by_address(
    private: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limit = FailureLimit(AttemptLimits(f"secret-{os.urandom(4).hex()}", 5, 8, 60))
    monkeypatch.setattr(wrong_secrets, "_failures", lambda: limit)
    port = private()
    secret = secret_of(port)
    kinds = [by_cookie, by_bearer, by_address]
    shown = [kinds[number % 3](f"plk_{number:043}") for number in range(7)]
    assert [ask(name_of(port), **each).status_code for each in shown] == [401] * 5 + [429] * 2
    assert ask(name_of(port), **by_cookie(secret)).status_code == 200
    assert ask(name_of(port)).status_code == 401, "who shows nothing guesses nothing"
    assert ask(name_of(port), caller="192.0.2.77", **shown[0]).status_code == 401
    assert secret not in caplog.text
    assert "plk_" not in caplog.text


def test_twenty_uses_at_once_are_all_let_in_and_written_once(private: Callable[..., PublicPort]) -> None:
    port = private()
    secret = secret_of(port)

    def use(number: int) -> int:
        try:
            return int(ask(name_of(port), **[by_cookie, by_bearer, by_address][number % 3](secret)).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(use, range(20)))
    assert sorted(set(statuses)) == [200, 303]
    used = PortLink.objects.get().last_used_at
    assert used is not None
    with CaptureQueriesContext(connection) as seen:
        assert ask(name_of(port), **by_cookie(secret)).status_code == 200
    assert not [query for query in seen.captured_queries if query["sql"].startswith("UPDATE")]
    assert PortLink.objects.get().last_used_at == used


def test_a_refused_visitor_is_no_use(private: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[str] = []
    monkeypatch.setattr(last_used, "record_use", recorded.append)
    port = private()
    ask(name_of(port)), ask(name_of(port), **by_cookie(UNKNOWN))
    assert recorded == []
    ask(name_of(port), **by_cookie(secret_of(port)))
    assert recorded == [port.workspace_id]


def test_a_custom_domain_of_a_private_port_is_private(private: Callable[..., PublicPort]) -> None:
    port = private()
    account = port.workspace.account
    domain = CustomDomain.objects.create(
        account=account,
        name="app.example.com",
        target_kind=TargetKind.WORKSPACE,
        target_id=port.workspace_id,
        port=8080,
    )
    DomainName.objects.create(name=domain.name, domain=domain)
    assert ask("app.example.com").status_code == 401
    secret = secret_of(port)
    assert ask("app.example.com", **by_cookie(secret))["X-Access"] == "private"
    opened = ask("app.example.com", **by_address(secret), X_Forwarded_Proto="https")
    assert (opened.status_code, opened["Location"]) == (303, "/")
    assert opened["Set-Cookie"].startswith("__Host-port_link=")


def test_an_installation_that_changed_its_key_knows_its_links(
    private: Callable[..., PublicPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = private()
    secret = secret_of(port)
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another-key-0123456789-0123456789-0123456789")
    assert ask(name_of(port), **by_cookie(secret)).status_code == 200


def test_nothing_of_a_link_is_logged(
    private: Callable[..., PublicPort], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("DEBUG")
    port = private()
    secret = secret_of(port)
    for shown in (
        by_cookie(secret),
        by_bearer(secret),
        by_address(secret),
        by_address(UNKNOWN),
        by_address(secret, "POST"),
    ):
        ask(name_of(port), **shown)
        ask(name_of(port), WAKE, **shown)
    assert secret not in caplog.text
    assert UNKNOWN not in caplog.text
