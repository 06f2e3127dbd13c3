"""Private ports at the edge: a real Caddy, the platform's answers, and a program that stands for one in a machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from domains.models import CustomDomain, DomainName, TargetKind
from edge.domain_files import DomainFiles, link_kind
from edge.port_links import PARAMETER
from tests.callers import Caller
from tests.commands.machines import World, receive
from tests.commands.private_ports import CLEAN, answered_world, cookie_of, open_private_world, private_port, raw
from tests.workspaces.network.link_requests import name_of, secret_of
from tests.workspaces.rows import make_workspace
from workspaces.models import PortLink, PublicPort
from workspaces.network.services import port_change

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with open_private_world() as made:
        yield made


@pytest.fixture
def world(shared_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    return answered_world(shared_world, monkeypatch)


@pytest.fixture
def port(api: Caller, world: World) -> PublicPort:
    return private_port(api, world)


def test_a_browser_opens_a_link_and_stays(world: World, port: PublicPort) -> None:
    secret, host = secret_of(port), name_of(port)
    refused = world.send("GET", CLEAN, host=host)
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    cookie = cookie_of(world, port, secret)
    answer = world.send("GET", CLEAN, host=host, headers={"Cookie": f"theirs=2; {cookie}; more=3"})
    seen = answer.json()
    assert (seen["path"], seen["headers"]["cookie"]) == (CLEAN, "theirs=2; more=3")
    assert secret not in answer.text
    assert not [name for name in seen["headers"] if name.startswith("x-edge")]


def test_a_program_shows_the_secret_as_a_bearer(world: World, port: PublicPort) -> None:
    secret = secret_of(port)
    headers = {"Authorization": f"Bearer {secret}", "Cookie": "theirs=2", "Referer": f"http://x/?{PARAMETER}={secret}"}
    answer = world.send("POST", "/up?q=1", host=name_of(port), headers=headers, content=b"body")
    seen = answer.json()
    assert (answer.status_code, seen["method"], seen["path"], seen["size"]) == (200, "POST", "/up?q=1", 4)
    assert seen["headers"]["cookie"] == "theirs=2"
    assert not {"authorization", "referer"} & set(seen["headers"])
    assert secret not in answer.text


def test_two_authorization_headers_smuggle_nothing(world: World, port: PublicPort) -> None:
    secret, host = secret_of(port), name_of(port)
    cookie = cookie_of(world, port, secret)
    pairs = [(f"Bearer {secret}", "Basic YTpi"), ("Basic YTpi", f"Bearer {secret}"), (f"bearer {secret}", "plk_")]
    for pair in pairs:
        lines = ["GET / HTTP/1.1", f"Host: {host}", *(f"Authorization: {value}" for value in pair)]
        assert raw(world, *lines).startswith(b"HTTP/1.1 401 ")
        opened = raw(world, *lines, f"Cookie: {cookie}")
        assert opened.startswith(b"HTTP/1.1 200 ")
        assert b"uthorization" not in opened.partition(b"\r\n\r\n")[2]
        assert secret.encode() not in opened


def test_forged_headers_of_the_edge_count_for_nothing(world: World, port: PublicPort) -> None:
    secret = secret_of(port)
    forged = {
        "X-Edge-Cookie": f"port_link={secret}",
        "X-Edge-Authorization": f"Bearer {secret}",
        "X-Edge-Address": f"GET /?{PARAMETER}={secret}",
        "X_Edge_Cookie": f"port_link={secret}",
        "X-Access": "public",
    }
    assert world.send("GET", host=name_of(port), headers=forged).status_code == 401


def test_a_cookie_of_one_port_opens_no_other(world: World, port: PublicPort, api: Caller) -> None:
    cookie, secret = cookie_of(world, port, secret_of(port)), secret_of(port)
    row = make_workspace(api.account, ip=port.workspace.ip, public_access=True, published_ports=1, host=None)
    other = PublicPort.objects.create(workspace=row, port=port.port, access="private")
    for headers in ({"Cookie": cookie}, {"Authorization": f"Bearer {secret}"}):
        assert world.send("GET", host=name_of(port), headers=headers).status_code == 200
        assert world.send("GET", host=name_of(other), headers=headers).status_code == 401
    assert world.send("GET", f"/?{PARAMETER}={secret}", host=name_of(other)).status_code == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_an_address_opens_by_get_alone(world: World, port: PublicPort, method: str) -> None:
    secret = secret_of(port)
    cookie = cookie_of(world, port, secret)
    for query in (f"{PARAMETER}={secret}", f"%5F_lin%6b={secret}", f"a=%zz&{PARAMETER}={secret}", f"{PARAMETER}=x"):
        answer = world.send(method, f"/?{query}", host=name_of(port), headers={"Cookie": cookie})
        assert answer.status_code == 401


def test_a_public_port_is_left_alone(world: World, port: PublicPort) -> None:
    port_change(workspace=port.workspace, actor="t", port=port.port, changes={"access": "public"})
    world.said["Cache-Control"] = "public, max-age=60"
    headers = {"Cookie": "port_link=theirs; a=1", "Authorization": "Bearer plk_theirs"}
    answer = world.send("GET", f"/?{PARAMETER}=x", host=name_of(port), headers=headers)
    seen = answer.json()
    assert (seen["path"], seen["headers"]["cookie"]) == (f"/?{PARAMETER}=x", headers["Cookie"])
    assert seen["headers"]["authorization"] == headers["Authorization"]
    assert answer.headers["cache-control"] == "public, max-age=60"


@pytest.mark.parametrize("shows", ["cookie", "bearer"])
def test_a_websocket_opens_with_both(world: World, port: PublicPort, shows: str) -> None:
    secret = secret_of(port)
    line = {"cookie": f"Cookie: {cookie_of(world, port, secret)}", "bearer": f"Authorization: Bearer {secret}"}[shows]
    upgrade = [
        "GET /ws HTTP/1.1", f"Host: {name_of(port)}", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    parts = urlsplit(world.base)
    for lines, status in ((upgrade, b"401"), ([*upgrade, line], b"101")):
        with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=60) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1)
            assert head.split()[1] == status
            if status == b"101":
                connection.sendall(b"one")
                assert receive(connection, 3) == b"one"


def test_each_request_is_asked_about_and_twenty_at_once_pass(world: World, port: PublicPort) -> None:
    secret = secret_of(port)
    headers = {"Cookie": cookie_of(world, port, secret)}
    world.platform.requests.clear()
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: world.send("GET", host=name_of(port), headers=headers), range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(world.platform.requests_of("api")) == 20
    PortLink.objects.all().delete()
    assert world.send("GET", host=name_of(port), headers=headers).status_code == 401


def test_a_sleeping_workspace_is_woken_for_visitors_with_a_link(world: World, port: PublicPort) -> None:
    secret = secret_of(port)
    woken = {"X-Upstream": world.machine, "X-Access": "private"}
    world.platform.answers |= {"api": (202, {}), "streams": (200, woken)}
    answer = world.send("GET", host=name_of(port), headers={"Cookie": f"port_link={secret}; a=1"})
    assert answer.json()["headers"]["cookie"] == "a=1"
    assert world.platform.requests_of("streams")[0][1]["x-edge-cookie"] == f"port_link={secret}; a=1"


def test_a_custom_domain_of_a_private_port_is_private(world: World, port: PublicPort) -> None:
    name, secret = "app.example.com", secret_of(port)
    domain = CustomDomain.objects.create(
        account=port.workspace.account, name=name, target_kind=TargetKind.WORKSPACE, target_id=port.workspace_id,
        port=port.port,
    )  # fmt: skip
    DomainName.objects.create(name=name, domain=domain)
    DomainFiles(world.instance.state).link_set(name, link_kind("port"))
    assert world.send("GET", host=name, headers={"X-Edge-Cookie": f"port_link={secret}"}).status_code == 401
    opened = world.send("GET", f"//evil.example?{PARAMETER}={secret}", host=name)
    assert (opened.status_code, opened.headers["location"]) == (303, "/%2Fevil.example")
    cookie = opened.headers["set-cookie"].partition(";")[0]
    for headers in ({"Cookie": f"{cookie}; a=1"}, {"Authorization": f"Bearer {secret}", "Cookie": "a=1"}):
        answer = world.send("GET", "/x", host=name, headers=headers)
        assert (answer.status_code, answer.json()["headers"]["cookie"]) == (200, "a=1")
        assert secret not in answer.text
        assert "private" in answer.headers["cache-control"]
