"""`/workspace/:id/public-access/:port/links`: links to private ports, and what ends them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from kombu.exceptions import OperationalError

from common.secrets_at_rest import keyed_hash
from edge.port_links import PARAMETER, is_secret
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_workspace
from tests.workspaces.test_shapes import assert_fits
from tests.workspaces.workspace_states import make
from tests.world import assert_error
from workspaces import host_rpc
from workspaces.host.sweep import sweep_due
from workspaces.models import Activity, PortLink, PublicPort, Workspace
from workspaces.network import serializers
from workspaces.network.links import LAST_USED_EVERY, link_use, links_expire
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
PORTS = "/workspace/the-box/public-access"
LINKS = f"{PORTS}/8080/links"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace with a private port."""
    key = make(api, vmhost, Status.RUNNING, slug="the-box")
    assert api.post(PORTS, {"port": 8080, "access": "private"}).status_code == 201
    return key


def new_link(api: Caller, **fields: Any) -> dict[str, Any]:
    answer = api.post(LINKS, {"ttl_seconds": 3600, **fields})
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()["link"]
    return found


def events(workspace_id: str) -> list[tuple[str, str]]:
    rows = Activity.objects.filter(workspace_id=workspace_id).order_by("id")
    return [(row.action, row.detail) for row in rows if row.action.startswith("port_")]


def test_access_is_shown_with_every_port_and_can_be_changed(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING, slug="the-box")
    assert api.post(PORTS, {"port": 80}).json()["port"]["access"] == "public"
    assert api.post(PORTS, {"port": 81, "access": "private"}).json()["port"]["access"] == "private"
    assert api.post(PORTS, {"port": 81}).json()["port"]["access"] == "private"
    changed = api.send("PATCH", f"{PORTS}/80", {"access": "private"}).json()
    assert [port["access"] for port in changed["ports"]] == ["private", "private"]
    assert api.post(PORTS, {"port": 81, "access": "public"}).json()["port"]["access"] == "public"
    shown = api.get("/workspace/the-box").json()["workspace"]["public_ports"]
    assert [port["access"] for port in shown] == ["private", "public"]
    told = [detail for action, detail in events(made) if action == "port_access_changed"]
    assert told == ["Port 80 is open to visitors with a link only.", "Port 81 is open to everyone."]
    for wrong in ("secret", "", None, 1, ["private"]):
        assert_error(api.send("PATCH", f"{PORTS}/80", {"access": wrong}), 400, "validation_error")
        assert_error(api.post(PORTS, {"port": 82, "access": wrong}), 400, "validation_error")


def test_a_port_that_becomes_private_ends_what_is_open(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING, slug="the-box")
    for port in (80, 81):
        api.post(PORTS, {"port": port})
    vmhost.driver.connections[made] = [80, 81]
    assert api.send("PATCH", f"{PORTS}/80", {"access": "private"}).status_code == 200
    assert vmhost.driver.connections[made] == [81]
    assert api.post(PORTS, {"port": 81, "access": "private"}).status_code == 200
    assert vmhost.driver.connections[made] == []
    vmhost.driver.connections[made] = [80]
    assert api.send("PATCH", f"{PORTS}/80", {"access": "private", "label": "x"}).status_code == 200
    assert vmhost.driver.connections[made] == [80], "it was private already"


def test_a_link_shows_its_secret_once(api: Caller, made: str) -> None:
    port = api.get(PORTS).json()["ports"][0]
    link = new_link(api, label="For Alice")
    assert set(link) == {"id", "url", "label", "expires_at", "created_at", "last_used_at"}
    head, _, secret = link["url"].partition(f"/?{PARAMETER}=")
    assert (head, is_secret(secret)) == (port["url"], True)
    assert (link["label"], link["last_used_at"]) == ("For Alice", None)
    listed = api.get(LINKS)
    assert listed.json() == {"success": True, "links": [{**link, "url": None}]}
    row = PortLink.objects.get()
    assert (row.token_hash, row.account_id) == (keyed_hash(secret), api.account.pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_jsonb(l)::text FROM workspaces_portlink l")
        assert secret[4:] not in cursor.fetchone()[0]
    seen = json.dumps([listed.json(), events(made), api.get("/workspace/activity").json()])
    assert secret not in seen
    assert f"Link {link['id']} opens port 8080 until {link['expires_at']}." in seen


def test_a_revoked_link_is_gone_and_ends_what_is_open(api: Caller, vmhost: FakeHost, made: str) -> None:
    first, second = new_link(api), new_link(api)
    vmhost.driver.connections[made] = [8080, 81]
    answer = api.delete(f"{LINKS}/{first['id']}")
    assert (answer.status_code, set(answer.json())) == (200, {"success", "message"})
    assert vmhost.driver.connections[made] == [81]
    assert [link["id"] for link in api.get(LINKS).json()["links"]] == [second["id"]]
    assert_error(api.delete(f"{LINKS}/{first['id']}"), 404, "port_link_not_found")
    assert events(made)[-1] == ("port_link_revoked", f"Link {first['id']} opens port 8080 no longer.")


def test_what_a_process_that_died_left_is_ended_by_the_sweep(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It revoked the link and did not tell the host."""
    link = new_link(api)
    monkeypatch.setattr("workspaces.network.services.apply_on_host", lambda *_: None)
    vmhost.driver.connections[made] = [8080]
    assert api.delete(f"{LINKS}/{link['id']}").status_code == 200
    assert vmhost.driver.connections[made] == [8080]
    assert sweep_due() == 1
    vmhost.settle()
    assert (vmhost.driver.connections[made], PortLink.objects.count()) == ([], 0)


def test_an_expired_link_ends_what_is_open_and_is_removed(api: Caller, vmhost: FakeHost, made: str) -> None:
    expired, kept = new_link(api), new_link(api)
    api.post(PORTS, {"port": 81, "access": "private"})
    PortLink.objects.filter(pk=expired["id"]).update(expires_at=timezone.now())
    vmhost.driver.connections[made] = [8080, 81]
    assert [link["id"] for link in api.get(LINKS).json()["links"]] == [kept["id"]]
    assert_error(api.delete(f"{LINKS}/{expired['id']}"), 404, "port_link_not_found")
    assert sweep_due() == 1
    vmhost.settle()
    assert vmhost.driver.connections[made] == [81]
    assert [row.pk for row in PortLink.objects.all()] == [kept["id"]]
    assert sweep_due() == 0


def test_a_link_whose_host_cannot_be_told_is_ended_later(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_link(api)
    PortLink.objects.update(expires_at=timezone.now())

    def away(*_: object, **__: object) -> None:
        raise OperationalError("The broker is away.")

    with monkeypatch.context() as patch:
        patch.setattr(host_rpc.current_app, "send_task", away)
        assert links_expire() == 0
    assert PortLink.objects.count() == 1
    assert links_expire() == 1


def test_a_link_of_a_clock_that_was_ahead_has_ended(api: Caller, made: str) -> None:
    new_link(api)
    PortLink.objects.update(expires_at=timezone.now() + timedelta(days=30))
    assert api.get(LINKS).json()["links"] == []
    assert links_expire() == 1


def test_links_go_with_their_port_with_its_privacy_and_with_their_workspace(api: Caller, made: str) -> None:
    new_link(api)
    assert api.send("PATCH", f"{PORTS}/8080", {"access": "public"}).status_code == 200
    assert PortLink.objects.count() == 0
    assert_error(api.post(LINKS, {"ttl_seconds": 60}), 409, "port_not_private")
    for end in (f"{PORTS}/8080", "/workspace/the-box"):
        api.post(PORTS, {"port": 8080, "access": "private"})
        new_link(api)
        assert api.delete(end).status_code == 200
        assert PortLink.objects.count() == 0


def test_links_of_a_port_are_bounded(api: Caller, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.ENV, "port_links_max", 2)
    new_link(api), new_link(api)
    refused = api.post(LINKS, {"ttl_seconds": 60})
    assert_error(refused, 409, "port_link_limit_exceeded")
    assert refused.json()["details"] == {"current": 2, "max": 2}
    api.post(PORTS, {"port": 81, "access": "private"})
    assert api.post(f"{PORTS}/81/links", {"ttl_seconds": 60}).status_code == 201
    PortLink.objects.filter(port__port=8080).update(expires_at=timezone.now())
    new_link(api)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "ttl_seconds"),
        ({"ttl_seconds": 59}, "ttl_seconds"),
        ({"ttl_seconds": 604_801}, "ttl_seconds"),
        ({"ttl_seconds": 90.5}, "ttl_seconds"),
        ({"ttl_seconds": "60"}, "ttl_seconds"),
        ({"ttl_seconds": True}, "ttl_seconds"),
        ({"ttl_seconds": 60, "label": "x" * 101}, "label"),
        ({"ttl_seconds": 60, "label": 7}, "label"),
        ({"ttl_seconds": 60, "label": "nul\0"}, "label"),
    ],
)
def test_an_invalid_link_is_refused(api: Caller, made: str, body: dict[str, Any], field: str) -> None:
    answer = api.post(LINKS, body)
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    assert PortLink.objects.count() == 0


def test_both_ends_of_the_time_to_live_are_taken(api: Caller, made: str) -> None:
    for seconds in (60, 604_800):
        link = new_link(api, ttl_seconds=seconds)
        row = PortLink.objects.get(pk=link["id"])
        assert abs((row.expires_at - row.created_at).total_seconds() - seconds) < 5
    assert len(api.get(LINKS).json()["links"]) == 2


@pytest.mark.parametrize("port", [81, 10**30])
def test_a_port_that_is_not_published_has_no_links(api: Caller, made: str, port: int) -> None:
    path = f"{PORTS}/{port}/links"
    assert_error(api.get(path), 404, "public_port_not_found")
    assert_error(api.post(path, {"ttl_seconds": 60}), 404, "public_port_not_found")
    assert_error(api.delete(f"{path}/lnk_aaaaaaaaaaaaaaaa"), 404, "public_port_not_found")


def test_a_link_is_revoked_at_its_own_port_alone(api: Caller, made: str) -> None:
    link = new_link(api)
    api.post(PORTS, {"port": 81, "access": "private"})
    other = make_workspace(api.account, slug="other", published_ports=1)
    PublicPort.objects.create(workspace=other, port=8080, access="private")
    for path in (f"{PORTS}/81/links", "/workspace/other/public-access/8080/links"):
        assert_error(api.delete(f"{path}/{link['id']}"), 404, "port_link_not_found")
    assert len(api.get(LINKS).json()["links"]) == 1


def test_a_workspace_without_a_machine_gets_no_link_and_keeps_the_right_to_revoke(api: Caller, made: str) -> None:
    link = new_link(api)
    Workspace.objects.filter(pk=made).update(status=Status.DESTROYED, ready=False)
    assert_error(api.post(LINKS, {"ttl_seconds": 60}), 409, "vm_missing")
    assert api.delete(f"{LINKS}/{link['id']}").status_code == 200


def test_a_sandbox_has_links_by_its_workspace(api: Caller) -> None:
    sandbox, _ = make_sandbox(api.account)
    path = f"/workspace/{sandbox.workspace_id}/public-access"
    assert api.post(path, {"port": 3000, "access": "private"}).status_code == 201
    assert api.post(f"{path}/3000/links", {"ttl_seconds": 60}).status_code == 201


def test_a_use_is_written_once_a_minute(api: Caller, made: str) -> None:
    link = new_link(api)
    begun = timezone.now()
    for _ in range(20):
        link_use(link["id"], None)
    first = PortLink.objects.get().last_used_at
    assert first is not None
    assert begun <= first <= begun + LAST_USED_EVERY
    link_use(link["id"], first)
    assert PortLink.objects.get().last_used_at == first
    for moved in (-LAST_USED_EVERY, 2 * LAST_USED_EVERY):
        PortLink.objects.update(last_used_at=first + moved)
        link_use(link["id"], first + moved)
        assert abs(PortLink.objects.get().last_used_at - timezone.now()) < LAST_USED_EVERY
    assert api.get(LINKS).json()["links"][0]["last_used_at"] is not None


def test_bodies_match_the_document(api: Caller, made: str) -> None:
    link = new_link(api)
    for method, path, body, shape in (
        ("PATCH", f"{PORTS}/8080", {"access": "private"}, serializers.PublicPortResponse()),
        ("POST", LINKS, {"ttl_seconds": 60}, serializers.PortLinkResponse()),
        ("GET", LINKS, None, serializers.PortLinksResponse()),
    ):
        answer = api.send(method, path, body)
        assert answer.status_code in (200, 201), answer.content
        assert_fits(answer.json(), shape, path)
    assert api.delete(f"{LINKS}/{link['id']}").json().keys() == {"success", "message"}
