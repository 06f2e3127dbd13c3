"""`/workspace/:id/public-access`: addresses of ports."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.test_shapes import assert_fits
from tests.workspaces.workspace_states import make
from tests.world import assert_error
from workspaces.models import PublicPort, Workspace
from workspaces.network import serializers
from workspaces.network.services import MAX_PORTS
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/workspace/the-box/public-access"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    return make(api, vmhost, Status.RUNNING, slug="the-box")


def publish(api: Caller, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = api.post(PATH, body)
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_a_port_gets_an_address_of_its_own(api: Caller, made: str) -> None:
    assert api.get(PATH).json() == {"success": True, "public_access": False, "ports": [], "public_ports": []}
    answer = publish(api, port=8080, label="My app")
    item = answer["port"]
    assert set(item) == {"port", "hash", "domain", "label", "slug", "access", "url"}
    assert (item["port"], item["label"]) == (8080, "My app")
    assert re.fullmatch("[a-z2-7]{20}", item["hash"])
    assert item["domain"] == f"{item['hash']}.localhost"
    assert item["url"] == f"http://{item['hash']}.localhost:8000"
    assert (answer["public_access"], answer["ports"]) == (True, [item])
    assert api.get(PATH).json()["ports"] == [item]
    # Names of earlier versions.
    assert (answer["public_port"], answer["public_ports"]) == (item, [item])
    workspace = api.get("/workspace/the-box").json()["workspace"]
    assert (workspace["public_ports"], workspace["network"]["public_access"]) == ([item], True)
    assert api.get("/workspace").json()["workspaces"][0]["public_ports"] == [item]


def test_a_slug_stands_in_front_of_the_hash(api: Caller, made: str) -> None:
    item = publish(api, port=80, slug="my-app")["port"]
    assert item["domain"] == f"my-app-{item['hash']}.localhost"
    assert len(item["domain"].split(".")[0]) <= 63
    longest = publish(api, port=81, slug="s" * 42)["port"]
    assert len(longest["domain"].split(".")[0]) == 63


def test_the_same_port_again_keeps_its_address(api: Caller, made: str) -> None:
    first = publish(api, port=80, label="one")["port"]
    assert publish(api, 200, port=80)["port"] == first
    again = publish(api, 200, port=80, label="two", slug="x")
    assert (again["port"]["hash"], again["port"]["label"]) == (first["hash"], "two")
    assert len(again["public_ports"]) == 1


def test_a_published_port_gets_another_slug(api: Caller, made: str) -> None:
    first = publish(api, port=80, label="one", slug="old")["port"]
    answer = api.send("PATCH", f"{PATH}/80", {"slug": "new"})
    changed = first | {"slug": "new"}
    changed |= {name: first[name].replace("old-", "new-") for name in ("domain", "url")}
    assert (answer.status_code, answer.json()["port"]) == (200, changed)
    assert api.get(PATH).json()["ports"] == [changed]
    assert api.send("PATCH", f"{PATH}/80", {}).json()["port"] == changed
    without = api.send("PATCH", f"{PATH}/80", {"slug": "", "label": "two"}).json()["port"]
    assert (without["domain"], without["label"]) == (f"{first['hash']}.localhost", "two")
    for port in (81, 10**30):
        assert_error(api.send("PATCH", f"{PATH}/{port}", {"slug": "new"}), 404)
    for slug in ("-a", "A", "a" * 43, 5, None):
        assert_error(api.send("PATCH", f"{PATH}/80", {"slug": slug}), 400, "validation_error")


def test_only_the_first_port_opens_public_access(api: Caller, made: str) -> None:
    publish(api, port=80)
    api.send("PATCH", "/workspace/the-box/network", {"public_access": False})
    assert publish(api, port=81)["public_access"] is False


def test_a_withdrawn_address_never_comes_back(api: Caller, vmhost: FakeHost, made: str) -> None:
    old = publish(api, port=80)["port"]
    vmhost.driver.connections[made] = [80, 81]
    answer = api.delete(f"{PATH}/80")
    assert answer.status_code == 200
    assert (answer.json()["public_ports"], api.get(PATH).json()["public_ports"]) == ([], [])
    assert vmhost.driver.connections[made] == [81]
    assert publish(api, port=80)["port"]["hash"] != old["hash"]
    assert Workspace.objects.get(pk=made).published_ports == 1
    missing = api.delete(f"{PATH}/81")
    assert (missing.status_code, missing.json()["code"]) == (404, "public_port_not_found")


@pytest.mark.parametrize("changes", [{"public_access": False}, {"ingress": ["192.0.2.0/24"]}])
def test_shutting_ends_what_is_open(api: Caller, vmhost: FakeHost, made: str, changes: dict[str, Any]) -> None:
    publish(api, port=80)
    publish(api, port=81)
    vmhost.driver.connections[made] = [80, 81, 9999]
    assert api.send("PATCH", "/workspace/the-box/network", changes).status_code == 200
    assert vmhost.driver.connections[made] == [9999]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "port"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "80"}, "port"),
        ({"port": 10022}, "port"),
        ({"port": 80, "label": "x" * 101}, "label"),
        ({"port": 80, "label": 7}, "label"),
        ({"port": 80, "slug": "Upper"}, "slug"),
        ({"port": 80, "slug": "-x"}, "slug"),
        ({"port": 80, "slug": "a.b"}, "slug"),
        ({"port": 80, "slug": "s" * 43}, "slug"),
    ],
)
def test_an_invalid_port_is_reported(api: Caller, made: str, body: dict[str, Any], field: str) -> None:
    answer = api.post(PATH, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    assert PublicPort.objects.count() == 0


def test_ports_are_bounded(api: Caller, made: str) -> None:
    for port in range(1, MAX_PORTS + 1):
        publish(api, port=port)
    answer = publish(api, 409, port=MAX_PORTS + 1)
    assert answer["code"] == "public_port_limit_exceeded"
    assert answer["details"] == {"current": MAX_PORTS, "max": MAX_PORTS}
    assert PublicPort.objects.count() == MAX_PORTS


def test_ports_go_with_their_workspace(api: Caller, vmhost: FakeHost, made: str) -> None:
    publish(api, port=80)
    assert api.delete("/workspace/the-box").status_code == 200
    assert PublicPort.objects.count() == 0


def test_a_list_reads_all_ports_by_one_query(api: Caller) -> None:
    def queries(count: int) -> int:
        for _ in range(count):
            row = make_workspace(api.account, published_ports=2)
            for port in (80, 81):
                PublicPort.objects.create(workspace=row, port=port)
        with CaptureQueriesContext(connection) as seen:
            listed = api.get("/workspace").json()["workspaces"]
        assert {len(row["public_ports"]) for row in listed} == {2}
        return len(seen)

    queries(1)
    assert queries(1) == queries(9)


def test_a_workspace_without_public_ports_costs_no_query_more(api: Caller) -> None:
    row = make_workspace(api.account)
    api.get(f"/workspace/{row.pk}")
    with CaptureQueriesContext(connection) as seen:
        api.get(f"/workspace/{row.pk}")
    assert not [query for query in seen.captured_queries if "publicport" in query["sql"]]


def test_bodies_match_the_document(api: Caller, made: str) -> None:
    for method, path, body, shape in (
        ("GET", "network", None, serializers.NetworkResponse()),
        ("PUT", "network", {"egress_ports": [443]}, serializers.NetworkChangedResponse()),
        ("PATCH", "network", {}, serializers.NetworkChangedResponse()),
        ("POST", "public-access", {"port": 8080}, serializers.PublicPortResponse()),
        ("POST", "public-access", {"port": 8080}, serializers.PublicPortResponse()),
        ("GET", "public-access", None, serializers.PublicPortsResponse()),
        ("DELETE", "public-access/8080", None, serializers.WithdrawnResponse()),
    ):
        answer = api.send(method, f"/workspace/the-box/{path}", body)
        assert answer.status_code in (200, 201), answer.content
        assert_fits(answer.json(), shape, path)
