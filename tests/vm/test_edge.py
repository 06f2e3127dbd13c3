"""Public ports of real machines: pages, bodies and WebSockets through the edge, and the wake by a request."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.sandboxes.sockets.client import Closed
from tests.vm.browser import Page, browser
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.sandbox_sockets import connect
from tests.vm.sleep_command import SleepCommand
from tests.vm.staff import confirm_action, logged_in_staff
from tests.vm.web import PORT, Site, WebSocket, make_site

pytestmark = [pytest.mark.vm, pytest.mark.host]
STORM = 50


@pytest.fixture(scope="module")
def site(instance: TestInstance, api: Api) -> Iterator[Site]:
    made = make_site(api, instance.settings.base_url)
    yield made
    api.delete(made.id)


@pytest.fixture
def asleep(site: Site, sleep_command: SleepCommand) -> Site:
    sleep_command.sleep(site.id)
    return site


def wakes(instance: TestInstance, site: Site) -> int:
    found = instance.query(
        f"SELECT count(*) FROM workspaces_operation WHERE workspace_id = '{site.id}' AND kind = 'wake'"
    )
    return int(found[0][0])


def test_a_program_is_reached_by_its_public_name(site: Site) -> None:
    assert site.visit("GET", "/").text.startswith("<!doctype html>")
    lies = {"X-Client-ID": "cli_1", "X-Client-Secret": "s", "X-Forwarded-For": "9.9.9.9", "Cookie": "mine=1"}
    head = site.visit("GET", "/head?a=1", headers=lies).text.lower()
    assert head.startswith("get /head?a=1 http/1.1")
    assert f"host: {site.domain}" in head
    assert "cookie: mine=1" in head
    assert "x-forwarded-for: 127.0.0.1\r\n" in head
    assert "x-client-" not in head
    assert "x-edge-" not in head


def test_bodies_and_websockets_go_through(site: Site) -> None:
    body = os.urandom(4 << 20)
    assert site.visit("POST", "/echo", content=body).content == body
    with site.socket() as opened:
        assert [opened.echo(word) for word in ("one", "two")] == ["one", "two"]


def test_a_published_port_reaches_a_program_on_loopback_and_no_other_port_does(api: Api, site: Site) -> None:
    """Published while the program runs, before it starts, and not any more."""
    api.execute(site.id, "mkdir /www; echo inside > /www/index.html; httpd -p 127.0.0.1:3000 -h /www")
    public = f"/workspace/{site.id}/public-access"
    other = replace(site, domain=api.call("POST", public, 201, json={"port": 3000})["public_port"]["domain"])
    until(lambda: other.visit("GET", "/").text == "inside\n", 30, "the program on loopback answers")
    later = replace(site, domain=api.call("POST", public, 201, json={"port": 3001})["public_port"]["domain"])
    assert later.visit("GET", "/").status_code == 502, "the other port's program is not reached by this one"
    api.execute(site.id, "httpd -p [::1]:3001 -h /www")
    until(lambda: later.visit("GET", "/").text == "inside\n", 30, "the program on the loopback of IPv6 answers")
    api.call("DELETE", f"{public}/3000")
    until(lambda: other.visit("GET", "/").status_code == 404, 30, "what is not published any more is not reached")
    assert later.visit("GET", "/").text == "inside\n"
    api.call("DELETE", f"{public}/3001")


def test_staff_open_a_terminal_of_a_machine_that_runs(instance: TestInstance, api: Api, site: Site) -> None:
    with logged_in_staff(instance) as staff:
        answer = confirm_action(staff, "workspaces/workspace", "terminal", site.id, reason="why")
    path, _, token = answer.headers["Location"].partition("/terminal#token=")
    assert path == f"/s/{site.id}"
    opened = {"url": f"{instance.settings.base_url}{path}"}
    with connect(opened, token) as client:
        made = client.ask("terminal_created", action="terminal_create", command="/bin/sh", args=["-i"])["terminalId"]
        client.send(a="i", id=made, d="echo $(id -u) $((6 * 7))\n")
        client.read_until(made, b"0 42\r\n")
    api.power(site.id, "pause")
    try:
        with pytest.raises(Closed) as closed:
            connect(opened, token)
        assert (closed.value.code, closed.value.reason) == (1001, "The workspace is paused; it must be running.")
    finally:
        api.power(site.id, "resume")
    history = api.call("GET", "/workspace/activity")["history"][site.id]
    events = [entry["event"] for entry in history]
    assert {"staff_terminal", "staff_action"} <= set(events)


def test_a_port_without_a_listener_is_reported(api: Api, site: Site) -> None:
    item = api.call("POST", f"/workspace/{site.id}/public-access", 201, json={"port": 4444})["public_port"]
    answer = site.visit("GET", "/", headers={"Host": item["domain"]})
    assert (answer.status_code, answer.json()["error"]) == (502, "port_closed")
    api.call("DELETE", f"/workspace/{site.id}/public-access/4444")
    assert site.visit("GET", "/", headers={"Host": item["domain"]}).status_code == 404


def test_an_unknown_name_is_not_found(site: Site) -> None:
    answer = site.visit("GET", "/", headers={"Host": f"{'a' * 20}.localhost", "Accept": "text/html"})
    assert answer.status_code == 404
    assert "Nothing is published" in answer.text


@pytest.mark.parametrize(
    ("closing", "status"),
    [({"public_access": False}, 404), ({"ingress": ["192.0.2.0/24"]}, 403), ({"ingress_ports": [80]}, 404)],
)
def test_closing_a_port_ends_open_connections(api: Api, site: Site, closing: dict[str, object], status: int) -> None:
    before = {name: api.get(site.id)["network"][name] for name in closing}
    with site.socket() as opened:
        assert opened.echo("x") == "x"
        assert api.call("PATCH", f"/workspace/{site.id}/network", json=closing)["applied"] is True
        try:
            assert site.visit("GET", "/ok").status_code == status
            with pytest.raises(ConnectionError):
                opened.echo("y")
        finally:
            api.call("PATCH", f"/workspace/{site.id}/network", json=before)
    assert site.visit("GET", "/ok").status_code == 200


def test_what_a_link_opened_ends_with_it(instance: TestInstance, api: Api, site: Site) -> None:
    """When it is revoked, when its time is over, and when a public port becomes private."""
    path = f"/workspace/{site.id}/public-access/{PORT}"

    def new_link() -> tuple[str, str]:
        made = api.call("POST", f"{path}/links", 201, json={"ttl_seconds": 60})["link"]
        return made["id"], made["url"].partition("__link=")[2]

    try:
        with site.socket() as opened:
            assert opened.echo("x") == "x"
            assert api.call("PATCH", path, json={"access": "private"})["port"]["access"] == "private"
            assert_ends(opened)
        assert site.visit("GET", "/ok").status_code == 401
        link, secret = new_link()
        location = site.visit("GET", f"/head?a=1&__link={secret}")
        assert (location.status_code, location.headers["location"]) == (303, "/head?a=1")
        cookie = location.headers["set-cookie"].partition(";")[0]
        head = site.visit("GET", "/head?a=1", headers={"Cookie": f"theirs=1; {cookie}"}).text
        assert "cookie: theirs=1\r\n" in head.lower()
        with site.socket(f"Cookie: {cookie}") as opened:
            assert opened.echo("x") == "x"
            api.call("DELETE", f"{path}/links/{link}")
            assert_ends(opened)
        assert site.visit("GET", "/ok", headers={"Cookie": cookie}).status_code == 401
        link, secret = new_link()
        with site.socket(f"Authorization: Bearer {secret}") as opened:
            assert opened.echo("x") == "x"
            instance.query(f"UPDATE workspaces_portlink SET expires_at = now() WHERE id = '{link}' RETURNING id")
            until(lambda: not api.call("GET", f"{path}/links")["links"], 10, "its time is over")
            until(lambda: not is_open(opened), 10, "the sweep has closed it")
    finally:
        api.call("PATCH", path, json={"access": "public"})
    assert site.visit("GET", "/ok").status_code == 200


def is_open(opened: WebSocket) -> bool:
    try:
        return opened.echo("y") == "y"
    except ConnectionError:
        return False


def assert_ends(opened: WebSocket) -> None:
    with pytest.raises(ConnectionError):
        opened.echo("y")


def test_callers_of_a_listed_network_come_in(api: Api, site: Site) -> None:
    path = f"/workspace/{site.id}/network"
    api.call("PATCH", path, json={"ingress": ["127.0.0.0/8"]})
    assert site.visit("GET", "/ok").text == "ok\n"
    api.call("PATCH", path, json={"ingress": []})


def test_one_that_is_paused_or_stopped_says_so(api: Api, site: Site) -> None:
    api.power(site.id, "pause")
    answer = site.visit("GET", "/ok")
    assert (answer.status_code, answer.json()["error"]) == (503, "workspace_not_running")
    assert "paused" in answer.json()["message"]
    api.power(site.id, "resume")
    assert site.visit("GET", "/ok").status_code == 200
    api.power(site.id, "stop")
    assert site.visit("GET", "/ok").status_code == 503
    api.power(site.id, "start")
    until(lambda: site.visit("GET", "/ok").status_code == 200, 30, "the program answers again")


def test_a_request_wakes_its_workspace_and_keeps_its_body(instance: TestInstance, api: Api, asleep: Site) -> None:
    before, body = wakes(instance, asleep), os.urandom(2 << 20)
    assert asleep.visit("POST", "/echo", content=body).content == body
    assert api.get(asleep.id)["status"] == "running"
    assert wakes(instance, asleep) == before + 1


def test_a_websocket_wakes_its_workspace(asleep: Site) -> None:
    with asleep.socket() as opened:
        assert opened.echo("awake") == "awake"


def test_a_storm_of_requests_makes_one_wake(instance: TestInstance, asleep: Site) -> None:
    before = wakes(instance, asleep)
    with ThreadPoolExecutor(STORM) as pool:
        answers = list(pool.map(lambda number: asleep.visit("POST", "/echo", content=f"{number}"), range(STORM)))
    assert [answer.text for answer in answers] == [str(number) for number in range(STORM)]
    assert wakes(instance, asleep) == before + 1


def test_an_open_websocket_keeps_its_workspace_awake(instance: TestInstance, api: Api, site: Site) -> None:
    """The idle time is over by the row; only the open connection keeps the workspace awake."""
    api.call("PUT", f"/workspace/{site.id}/lifecycle/idle", json={"suspend_after": 120})
    try:
        with site.socket() as opened:
            time.sleep(12)  # connections that the edge only keeps for later are gone
            assert opened.echo("x") == "x"
            _make_idle(instance, site)
            until(lambda: _sleeps(instance, site) > 0, 20, "a sleep was tried")
            assert api.reaches(site.id, "running")["status"] == "running"
            assert opened.echo("y") == "y"
    finally:
        api.call("PUT", f"/workspace/{site.id}/lifecycle/idle", json={"suspend_after": 0})


def _make_idle(instance: TestInstance, site: Site) -> None:
    code = (
        "from common.redis import redis_client; from workspaces import last_used; "
        "from workspaces.models import Workspace; "
        "from django.utils import timezone; "
        f"redis_client().delete(last_used._key('{site.id}')); "
        f"Workspace.objects.filter(pk='{site.id}').update(idle_due_at=timezone.now())"
    )
    ran = instance.command("manage", "--", "shell", "-c", code)
    assert ran.returncode == 0, ran.stderr


def _sleeps(instance: TestInstance, site: Site) -> int:
    found = instance.query(
        "SELECT count(*) FROM workspaces_operation WHERE kind = 'sleep' AND state = 'cancelled' "
        f"AND error_code = 'in_use' AND workspace_id = '{site.id}'"
    )
    return int(found[0][0])


def test_a_browser_keeps_its_websocket_over_the_wake_of_another(
    instance: TestInstance, api: Api, site: Site, sleep_command: SleepCommand
) -> None:
    other = make_site(api, instance.settings.base_url)
    try:
        with browser() as chromium:
            first = chromium.open(site.url)
            until(lambda: first.value("window.echoes") > 3, 30, "the first page's WebSocket speaks")
            sleep_command.sleep(other.id)
            second = chromium.open(other.url)
            assert second.value("document.getElementById('said').textContent") == "hello from inside"
            for page in (first, second):
                _goes_on(page)
            assert api.get(other.id)["status"] == "running"
    finally:
        api.delete(other.id)


def _goes_on(page: Page) -> None:
    so_far = page.value("window.echoes")
    until(lambda: page.value("window.echoes") > so_far + 3, 30, "the WebSocket goes on")
    assert page.value("socket.readyState") == 1


def test_the_public_port_is_the_one_that_was_published(api: Api, site: Site) -> None:
    row = api.get(site.id)
    assert [item["port"] for item in row["public_ports"]] == [PORT]
    assert row["public_ports"][0]["url"] == site.url
