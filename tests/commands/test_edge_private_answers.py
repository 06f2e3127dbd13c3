"""Requests and answers between visitors and a private port: a real Caddy, and the platform's own answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from edge.port_links import PARAMETER
from tests.callers import Caller
from tests.commands.machines import World
from tests.commands.private_ports import LOG, answered_world, cookie_of, open_private_world, private_port, raw
from tests.free_ports import free_port
from tests.workspaces.network.link_requests import name_of, secret_of
from workspaces.models import PublicPort

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


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("{0}", None),
        ("{0}; a=1", "a=1"),
        ("a=1; {0}", "a=1"),
        ("a=1;{0};b=2", "a=1;b=2"),
        ("{0}; {0}; a=1; {0}", "a=1"),
        ("a=1; {0}; port_link=plk_other; __Host-port_link=plk_x; b=2", "a=1; b=2"),
        ('{0}; a="x; port_link =plk_y"; b', 'a="x; b'),
        ("xport_link=1; {0}; port_links=2", "xport_link=1; port_links=2"),
    ],
)
def test_the_program_gets_its_own_cookies_alone(world: World, port: PublicPort, sent: str, arrives: str | None) -> None:
    cookie = cookie_of(world, port, secret_of(port))
    answer = world.send("POST", host=name_of(port), headers={"Cookie": sent.replace("{0}", cookie)}, content=b"x" * 9)
    assert (answer.status_code, answer.json()["size"]) == (200, 9)
    assert answer.json()["headers"].get("cookie") == arrives


def test_credentials_of_the_program_pass_beside_our_cookie(world: World, port: PublicPort) -> None:
    cookie = cookie_of(world, port, secret_of(port))
    headers = {"Cookie": cookie, "Authorization": "Basic YTpi", "Referer": "http://x/"}
    seen = world.send("GET", host=name_of(port), headers=headers).json()["headers"]
    assert (seen["authorization"], seen["referer"]) == ("Basic YTpi", "http://x/")


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("//evil.example/%2e%2e", "/%2Fevil.example/%2e%2e"),
        ("///evil.example", "/%2F/evil.example"),
        ("/\\evil.example", "/%5Cevil.example"),
        ("/\\/evil.example/", "/%5C/evil.example/"),
        ("/%2F/evil.example", "/%2F/evil.example"),
        ("/.//evil.example", "/.//evil.example"),
        ("/@evil.example:80", "/@evil.example:80"),
        ("/\xe4", "/%E4"),
    ],
)
def test_a_link_leads_to_no_other_host(world: World, port: PublicPort, path: str, location: str) -> None:
    host, secret = name_of(port), secret_of(port)
    for named in (host, f"{host}:1234", f"{host.upper()}."):
        answer = raw(
            world, f"GET {path}?{PARAMETER}={secret} HTTP/1.1", f"Host: {named}", "X-Forwarded-Host: evil.example"
        )
        assert answer.startswith(b"HTTP/1.1 303 ")
        assert re.findall(rb"(?i)\r\nlocation: ([^\r]*)", answer) == [location.encode()]


def test_a_host_header_that_lies_opens_nothing(world: World, port: PublicPort) -> None:
    host, secret = name_of(port), secret_of(port)
    for line in (
        f"Host: {host}@evil.example", f"Host: {host}.evil.example", f"Host: {host}:80@evil.example", f"Host: x{host}",
        f"Host: evil.example\r\nHost: {host}", f"Host: {host} evil.example", f"Host: {host}/evil.example",
    ):  # fmt: skip
        answer = raw(world, f"GET /?{PARAMETER}={secret} HTTP/1.1", line)
        assert b"\r\nlocation: /\r\n" in answer.lower() or int(answer.split()[1]) in (400, 401, 404)
        assert b"evil" not in answer.partition(b"\r\n\r\n")[0]
    absolute = raw(world, f"GET http://{host}/?{PARAMETER}={secret} HTTP/1.1", "Host: evil.example")
    assert absolute.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))


def test_what_a_private_port_answers_is_for_no_shared_cache(world: World, port: PublicPort) -> None:
    cookie = cookie_of(world, port, secret_of(port))
    said = {
        "Cache-Control": "public, max-age=60, s-maxage=600",
        "CDN-Cache-Control": "max-age=600",
        "Cloudflare-CDN-Cache-Control": "max-age=600",
        "Surrogate-Control": "max-age=600",
        "Vary": "Accept",
    }
    for headers in (said, {"Cache-Control": "no-store"}, {}):
        world.said.clear()
        world.said.update(headers)
        found = world.send("GET", host=name_of(port), headers={"Cookie": cookie}).headers
        control = found["cache-control"]
        assert "private" in control
        assert not re.search("public|s-maxage", control)
        assert ("no-store" in control, "max-age=60" in control) == ("no-store" in str(headers), headers == said)
        assert "Authorization, Cookie" in found["vary"]
        assert ("Accept" in found["vary"]) is ("Vary" in headers)
        assert not [name for name in found if "cdn" in name or "surrogate" in name]


def test_a_program_cannot_set_our_cookie(world: World, port: PublicPort) -> None:
    cookie = cookie_of(world, port, secret_of(port))
    for name in ("port_link", "__Host-port_link", "PORT_LINK", " port_link "):
        world.said["Set-Cookie"] = f"{name}=theirs; Path=/; Domain=localhost"
        found = world.send("GET", host=name_of(port), headers={"Cookie": cookie}).headers
        assert "theirs" not in str(found)
        assert "mine=1" in found["set-cookie"]


def test_of_a_request_only_what_may_be_a_link_is_asked_about(world: World, port: PublicPort) -> None:
    secret, host = secret_of(port), name_of(port)
    world.platform.requests.clear()
    world.send("GET", "/secret?x=1", host=host, headers={"Cookie": "theirs=2", "Authorization": "Bearer theirs"})
    ((_, headers, _),) = world.platform.requests_of("api")
    assert "theirs" not in str(headers)
    assert "/secret" not in str(headers)
    world.send("GET", "/secret", host=host, headers={"Authorization": f"Bearer {secret}"})
    assert world.platform.requests_of("api")[1][1]["x-edge-authorization"] == f"Bearer {secret}"


def test_nothing_of_a_link_is_in_the_log(world: World, port: PublicPort, caplog: pytest.LogCaptureFixture) -> None:
    secret, host = secret_of(port), name_of(port)
    bearer = {"Authorization": f"Bearer {secret}"}
    world.send("GET", f"/?{PARAMETER}={secret}", host=host)
    world.send("GET", host=host, headers=bearer)
    PublicPort.objects.filter(pk=port.pk).update(port=free_port())
    assert world.send("GET", host=host, headers=bearer).status_code == 502
    with world.without("api"):
        assert world.send("GET", f"/?{PARAMETER}={secret}", host=host, headers=bearer).status_code == 503
    log = (world.instance.state / LOG).read_text()
    assert "serving" in log
    assert secret[:12] not in log
    assert secret[:12] not in caplog.text
