"""The domain routes of pages and workspaces: check, connect, read, disconnect, renew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from accounts.scopes import Scope
from certificates.ca_account import CERTIFICATES_OFF
from certificates.selectors import SslState
from domains.models import CustomDomain, DomainName
from namespaces.models import Namespace
from pages.models import PageEvent
from tests.callers import Caller
from tests.domains.zone import EDGE, Zone
from tests.pages.rows import make_page
from tests.staff.pages import confirm
from tests.workspaces.rows import make_workspace
from tests.world import assert_error
from workspaces.models import Activity, PublicPort
from workspaces.network.services import port_publish

pytestmark = pytest.mark.django_db
NAME = "www.example.com"
NO_SSL = {"status": "none", "expiresAt": None, "error": CERTIFICATES_OFF}


@pytest.fixture
def page(api: Caller, zone: Zone) -> Any:
    found = make_page(api.account, slug="site", release=1)
    zone.point(NAME)
    zone.prove(NAME, found.pk)
    return found


@pytest.fixture
def workspace(api: Caller, zone: Zone) -> Any:
    found = make_workspace(api.account)
    port_publish(workspace=found, actor="t", port=3000)
    zone.point(NAME)
    zone.prove(NAME, found.pk)
    return found


def test_a_check_shows_what_is_expected_and_found(api: Caller, page: Any) -> None:
    answer = api.post("/pages/site/domain/check", {"domain": "WWW.Example.com."})
    assert answer.json() == {
        "success": True,
        "domain": NAME,
        "verified": True,
        "cname": {"expected": EDGE, "actual": EDGE, "ok": True},
        "ownership": {
            "host": f"_platform.{NAME}",
            "expected": f"verify={page.pk}",
            "found": f"verify={page.pk}",
            "ok": True,
        },
        "errors": [],
    }
    assert not CustomDomain.objects.exists()


def test_a_page_is_connected_read_and_disconnected(api: Caller, page: Any) -> None:
    made = api.post("/pages/site/domain", {"domain": NAME})
    assert made.status_code == 200
    shown = {"domain": NAME, "domain_ascii": NAME, "ssl": NO_SSL, "url": made.json()["url"]}
    assert made.json() == {"success": True, **shown}
    assert made.json()["url"].startswith(f"http://{NAME}")
    assert api.get("/pages/site").json()["page"]["custom_domain"] == NAME
    assert [row["custom_domain"] for row in api.get("/pages").json()["pages"]] == [NAME]
    renamed = api.put("/pages/site", {"slug": "other"}).json()["page"]
    assert renamed["custom_domain"] == NAME
    read = api.get("/pages/other/domain").json()["domain"]
    assert read == {**shown, "include_www": False, "verified": True}
    assert api.delete("/pages/other/domain").status_code == 200
    assert api.get("/pages/other/domain").json() == {"success": True, "domain": None}
    assert api.get("/pages/other").json()["page"]["custom_domain"] is None
    assert_error(api.delete("/pages/other/domain"), 404, "not_found")
    assert_error(api.post("/pages/other/domain/ssl/renew"), 404, "not_found")
    assert [event.action for event in PageEvent.objects.filter(action__startswith="domain").order_by("pk")] == [
        "domain_connected",
        "domain_disconnected",
    ]


def test_a_workspaces_port_is_connected(api: Caller, workspace: Any) -> None:
    path = f"/workspace/{workspace.pk}/domain"
    assert_error(api.post(path, {"domain": NAME}), 400, "validation_error")
    assert_error(api.post(path, {"domain": NAME, "port": 3001}), 404, "public_port_not_found")
    assert api.post(f"{path}/check", {"domain": NAME}).json()["verified"]
    assert api.post(path, {"domain": NAME, "port": 3000}).json()["domain"] == NAME
    read = api.get(f"/workspace/{workspace.slug}/domain").json()["domain"]
    assert (read["port"], read["include_www"]) == (3000, False)
    assert api.post(f"{path}/ssl/renew").json() == {
        "success": True, "domain": NAME, "domain_ascii": NAME, "ssl": NO_SSL,
    }  # fmt: skip
    assert api.delete(path).status_code == 200
    events = Activity.objects.filter(workspace_id=workspace.pk).values_list("action", flat=True)
    assert {"domain_connected", "certificate_renewed", "domain_disconnected"} <= set(events)


def test_records_that_are_not_ready_refuse_the_connection(api: Caller, page: Any, zone: Zone) -> None:
    zone.prove(NAME, "pg_other")
    refused = api.post("/pages/site/domain", {"domain": NAME})
    assert_error(refused, 400, "domain_not_verified")
    details = refused.json()["details"]
    assert set(details) == {"domain", "verified", "cname", "ownership", "errors"}
    assert (details["ownership"]["found"], details["verified"]) == ("verify=pg_other", False)
    zone.prove(NAME, page.pk)
    zone.set(NAME, CNAME="elsewhere.example.")
    assert_error(api.post("/pages/site/domain", {"domain": NAME}), 400, "domain_not_verified")
    assert not CustomDomain.objects.exists()


def test_without_the_setting_a_domain_is_connected_before_its_records(api: Caller, page: Any, env: Any) -> None:
    env(domain_verification=False)
    assert api.post("/pages/site/domain", {"domain": "later.example.com"}).status_code == 200
    assert api.get("/pages/site/domain").json()["domain"]["verified"] is False


@pytest.mark.parametrize("field", ["include_www", "includeWww"])
def test_www_is_a_second_name(api: Caller, page: Any, zone: Zone, field: str) -> None:
    zone.prove("example.com", page.pk)
    zone.point("example.com")
    assert api.post("/pages/site/domain", {"domain": "example.com", field: True}).status_code == 200
    assert set(DomainName.objects.values_list("name", flat=True)) == {"example.com", NAME}
    assert api.get("/pages/site/domain").json()["domain"]["include_www"] is True
    api.post("/pages/site/domain", {"domain": "example.com"})
    assert set(DomainName.objects.exclude(domain=None).values_list("name", flat=True)) == {"example.com"}


def test_another_domain_takes_the_place_of_the_first(api: Caller, page: Any, zone: Zone) -> None:
    zone.point("b.example.com")
    zone.prove("b.example.com", page.pk)
    api.post("/pages/site/domain", {"domain": NAME})
    api.post("/pages/site/domain", {"domain": "b.example.com"})
    assert CustomDomain.objects.get().name == "b.example.com"
    assert DomainName.objects.get(domain__isnull=False).name == "b.example.com"


def test_international_names_are_shown_in_both_forms(api: Caller, page: Any, zone: Zone) -> None:
    ascii_name = "xn--mnchen-3ya.example.com"
    zone.point(ascii_name)
    zone.prove(ascii_name, page.pk)
    made = api.post("/pages/site/domain", {"domain": "M\u00fcnchen.example.com"}).json()
    assert (made["domain"], made["domain_ascii"]) == ("m\u00fcnchen.example.com", ascii_name)
    assert made["url"].startswith(f"http://{ascii_name}")
    assert api.get("/pages").json()["pages"][0]["custom_domain"] == "m\u00fcnchen.example.com"


@pytest.mark.parametrize("domain", ["com", "192.0.2.1", "*.example.com", "x.localhost", "", 7, None])
def test_what_is_no_domain_is_a_validation_error(api: Caller, page: Any, domain: Any) -> None:
    for path in ("/pages/site/domain", "/pages/site/domain/check"):
        refused = api.post(path, {"domain": domain})
        assert_error(refused, 400, "validation_error")
        assert list(refused.json()["details"]) == ["domain"]


def test_an_account_has_a_limited_number(api: Caller, page: Any, zone: Zone, env: Any) -> None:
    env(domains_per_account=1)
    assert api.post("/pages/site/domain", {"domain": NAME}).status_code == 200
    assert api.post("/pages/site/domain", {"domain": NAME}).status_code == 200, "the same again"
    second = make_page(api.account, slug="second")
    zone.point("b.example.com")
    zone.prove("b.example.com", second.pk)
    refused = api.post("/pages/second/domain", {"domain": "b.example.com"})
    assert_error(refused, 409, "domain_limit_exceeded")
    assert refused.json()["details"] == {"current": 1, "max": 1}


def test_www_of_a_domain_is_no_name_of_the_platform(api: Caller, page: Any, env: Any, settings: Any) -> None:
    env(domain_verification=False)
    settings.BASE_URL = "https://www.example.com"
    for path in ("/pages/site/domain", "/pages/site/domain/check"):
        refused = api.post(path, {"domain": "example.com", "include_www": True})
        assert_error(refused, 400, "validation_error")
        assert list(refused.json()["details"]) == ["include_www"]
    assert api.post("/pages/site/domain", {"domain": "example.com"}).status_code == 200


def test_forced_renewals_ask_the_dns_no_more_often_than_checks(
    api: Caller, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("domains.throttles.DnsThrottle.limit", 3)
    api.post("/pages/site/domain", {"domain": NAME})
    assert [api.post("/pages/site/domain/ssl/renew").status_code for _ in range(4)] == [200, 200, 429, 429]


def test_questions_to_name_servers_are_limited(api: Caller, page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domains.throttles.DnsThrottle.limit", 3)
    for path in ("/pages/site/domain/check", "/pages/site/domain") * 2:
        answer = api.post(path, {"domain": NAME})
    assert_error(answer, 429, "rate_limited")
    assert api.get("/pages/site/domain").status_code == 200


def test_a_namespaces_credential_reaches_domains_of_its_pages_only(
    api: Caller, scoped: Callable[..., Caller], page: Any
) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside = scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    for send in (inside.get, inside.delete, inside.post):
        assert_error(send("/pages/site/domain"), 404, "not_found")
    home = Namespace.objects.get(account=api.account, is_default=True)
    member = scoped(api, Scope.NAMESPACE, namespace_id=home.pk, namespace_slug="default")
    assert member.post("/pages/site/domain", {"domain": NAME}).status_code == 200


def test_deleting_the_target_disconnects_its_domain(api: Caller, page: Any) -> None:
    api.post("/pages/site/domain", {"domain": NAME})
    assert api.delete("/pages/site").status_code == 200
    assert not CustomDomain.objects.exists()
    assert not DomainName.objects.filter(domain__isnull=False).exists()


def test_a_deleted_workspace_leaves_no_domain(api: Caller, workspace: Any) -> None:
    from workspaces.rows import delete_row

    api.post(f"/workspace/{workspace.pk}/domain", {"domain": NAME, "port": 3000})
    assert CustomDomain.objects.exists()
    delete_row(workspace)
    assert not CustomDomain.objects.exists()
    assert not PublicPort.objects.exists()


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ({"example.com": "active", NAME: "active"}, "active"),
        ({"example.com": "active", NAME: "pending"}, "pending"),
        ({"example.com": "pending", NAME: "failed"}, "failed"),
        ({"example.com": "active"}, "none"),
    ],
)
def test_the_state_of_the_certificates_is_that_of_the_least_ready_one(
    api: Caller, page: Any, zone: Zone, monkeypatch: pytest.MonkeyPatch, states: dict[str, Any], shown: str
) -> None:
    zone.point("example.com")
    zone.prove("example.com", page.pk)
    found = {name: SslState(state, None, "a sentence" if state == "failed" else "") for name, state in states.items()}
    monkeypatch.setattr("domains.selectors.certificate_states", lambda names: found)
    made = api.post("/pages/site/domain", {"domain": "example.com", "include_www": True}).json()
    assert made["ssl"]["status"] == shown
    assert made["ssl"]["error"] == ("a sentence" if shown == "failed" else None)
    assert made["url"].startswith("https://example.com" if shown == "active" else "http://example.com")


def test_staff_check_and_disconnect_domains(staff: Client, api: Caller, page: Any, zone: Zone) -> None:
    api.post("/pages/site/domain", {"domain": NAME})
    zone.prove(NAME)
    row = CustomDomain.objects.get()
    shown = confirm(staff, "domains/customdomain", "check_records", row.pk)
    assert f"_platform.{NAME}" in shown.content.decode()
    assert CustomDomain.objects.exists()
    confirm(staff, "domains/customdomain", "disconnect", row.pk, reason="why")
    assert not CustomDomain.objects.exists()
    assert PageEvent.objects.filter(action="domain_disconnected", actor="staff root").exists()
