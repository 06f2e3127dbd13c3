"""Where the platform sends a request for a custom domain: to the public port of a workspace, by that port's rules."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.services import account_switch
from domains.models import CustomDomain, DomainName, TargetKind
from edge.route_cache import RouteCache
from tests.callers import Caller
from tests.workspaces.network.edge_requests import PORT, ask, through_fast_path
from tests.workspaces.rows import make_workspace
from workspaces import last_used, route_cache
from workspaces.network.services import port_publish, port_withdraw
from workspaces.rows import update_row
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "app.example.com"


@pytest.fixture
def workspace(api: Caller, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_workspace(api.account, ip="10.200.0.9")
    port_publish(workspace=made, actor="t", port=3000)
    domain = CustomDomain.objects.create(
        account=api.account, name=NAME, target_kind=TargetKind.WORKSPACE, target_id=made.pk, port=3000, include_www=True
    )
    for name in domain.names:
        DomainName.objects.create(name=name, domain=domain)
    monkeypatch.setattr(last_used, "record_use", lambda workspace_id: None)
    monkeypatch.setattr(RouteCache, "store", _never)
    return made


def _never(*args: Any) -> None:
    raise AssertionError("The edge looks for labels of public ports alone.")


@pytest.mark.parametrize("host", [NAME, "APP.Example.com", f"{NAME}."])
def test_a_domain_leads_to_its_port(workspace: Any, host: str) -> None:
    assert through_fast_path(host) == ("200", "10.200.0.9:3000")
    assert ask(host)["X-Upstream"] == "10.200.0.9:3000"


@pytest.mark.parametrize(
    "host", ["example.com", f"x.{NAME}", f"www.{NAME}", "", ".", "localhost", "a\x00.com", "\udcff"]
)
def test_other_names_lead_nowhere(workspace: Any, host: str) -> None:
    assert through_fast_path(host) == ("404", "")


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"public_access": False}, 404),
        ({"ingress_ports": [80]}, 404),
        ({"ingress": ["198.51.100.0/24"]}, 403),
        ({"status": Status.SLEEPING, "ready": False}, 202),
        ({"status": Status.STOPPED, "ready": False}, 503),
    ],
)
def test_the_rules_of_the_port_hold_for_the_domain(workspace: Any, columns: dict[str, Any], status: int) -> None:
    update_row(workspace, **columns)
    assert through_fast_path(NAME) == ("404", ""), "the views answer"
    assert ask(NAME, PORT).status_code == status


def test_a_port_that_is_not_public_any_more_is_not_served(workspace: Any) -> None:
    port_withdraw(workspace=workspace, actor="t", port=3000)
    assert ask(NAME).status_code == 404
    port_publish(workspace=workspace, actor="t", port=3000)
    assert ask(NAME).status_code == 200


def test_the_port_of_an_account_that_is_not_active_is_not_served(api: Caller, workspace: Any) -> None:
    account_switch(api.account, is_active=False)
    assert ask(NAME).status_code == 404
    account_switch(api.account, is_active=True)
    assert ask(NAME).status_code == 200


def test_a_page_of_that_name_is_no_port(api: Caller, workspace: Any) -> None:
    CustomDomain.objects.update(target_kind=TargetKind.PAGE, port=None)
    assert ask(NAME).status_code == 404
    assert route_cache.held_addresses() == set()
