"""Public ports at the edge: a real Caddy in front of stub servers that route to a program."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator

import pytest

from common.edge_header import EdgeFacts, edge_facts, edge_secret
from edge.caddy import caddyfile
from supervise.instance import Instance, InstanceError
from tests.commands.machines import HASH, World, cache_route_for_long, open_shared_world, receive, websocket

FACTS = EdgeFacts(f"{HASH}.localhost", "127.0.0.1")
UNDERSCORES = {
    "X_Forwarded_For": "9.9.9.9",
    "X-Forwarded_For": "9.9.9.9",
    "X_Edge": "lie localhost 9.9.9.9 lie",
    "X_Client_ID": "cli_9.9.9.9",
    "X_Upstream": "9.9.9.9:1",
}


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with open_shared_world() as made:
        yield made


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.reset()
    return shared_world


def test_a_request_reaches_the_machine_that_the_platform_names(world: World) -> None:
    answer = world.send("GET", "/a/b?c=%2F&d", headers={"Cookie": "theirs=2", "Authorization": "Bearer theirs"})
    seen = answer.json()
    assert (seen["method"], seen["path"]) == ("GET", "/a/b?c=%2F&d")
    assert seen["headers"]["host"] == f"{HASH}.localhost"
    assert (seen["headers"]["cookie"], seen["headers"]["authorization"]) == ("theirs=2", "Bearer theirs")
    assert answer.headers["set-cookie"] == "mine=1"
    ((path, headers, body),) = world.platform.requests_of("api")
    assert (path, body) == ("/internal/edge/port", "")
    assert edge_facts(headers["x-edge"], world.instance.settings({}).secret_key) == FACTS
    assert not {"cookie", "authorization"} & set(headers)


@pytest.mark.parametrize("asleep", [False, True])
def test_the_edge_header_is_the_edges_despite_client_headers(world: World, asleep: bool) -> None:
    if asleep:
        world.platform.answers["streams"] = world.platform.answers["api"]
        world.platform.answers["api"] = (202, {})
    forged = {"X-Edge": "lie localhost 9.9.9.9 lie", "X-Edge-Host": "lie.localhost", "X-Upstream": "127.0.0.1:1"}
    seen = world.send("GET", headers=forged).json()["headers"]
    for _, _, headers, _ in world.platform.requests:
        assert edge_facts(headers["x-edge"], world.instance.settings({}).secret_key) == FACTS
        assert "x-edge-host" not in headers
    assert len(world.platform.requests) == 1 + asleep
    assert not [name for name in seen if name.startswith("x-edge")]


@pytest.mark.parametrize("cached", [False, True])
def test_headers_with_an_underscore_are_dropped(world: World, cached: bool) -> None:
    """In WSGI, CGI and much else they would become the same variables as the edge's own."""
    if cached:
        cache_route_for_long(world)
    seen = world.send("GET", headers=UNDERSCORES).json()["headers"]
    assert seen["x-forwarded-for"] == "127.0.0.1"
    for headers in (seen, *(headers for _, _, headers, _ in world.platform.requests)):
        assert not [name for name in headers if "_" in name]
        assert "9.9.9.9" not in str(headers)
    assert len(world.platform.requests) == (0 if cached else 1)


def test_only_the_edge_sets_forwarded_headers(world: World) -> None:
    forged = {
        **dict.fromkeys(("X-Forwarded-For", "X-Real-IP"), "9.9.9.9"),
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Prefix": "/evil",
        "Forwarded": "for=9.9.9.9",
    }
    seen = world.send("GET", headers=forged).json()["headers"]
    assert seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["x-forwarded-proto"] == "http"
    assert seen["x-forwarded-host"] == f"{HASH}.localhost"
    assert not {"x-real-ip", "forwarded", "x-forwarded-prefix"} & set(seen)
    assert world.platform.requests_of("api")[0][1]["x-forwarded-for"] == "127.0.0.1"


def test_platform_credentials_are_not_forwarded(world: World) -> None:
    seen = world.send("GET", headers={"X-Client-ID": "cli_1", "X-Client-Secret": "s"}).json()["headers"]
    assert not {"x-client-id", "x-client-secret"} & set(seen)


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("asleep", [False, True])
def test_a_request_body_reaches_the_machine_complete(world: World, method: str, asleep: bool) -> None:
    if asleep:
        world.platform.answers["streams"] = world.platform.answers["api"]
        world.platform.answers["api"] = (202, {})
    body = bytes(range(256)) * 40_000
    for content in (body, iter([body[:5_000_000], body[5_000_000:]])):
        seen = world.send(method, "/upload", content=content).json()
        assert (seen["method"], seen["size"], seen["sum"]) == (method, len(body), sum(body) % 65521)
    assert {body for _, _, body in world.platform.requests_of("api")} == {""}
    assert [path for path, _, _ in world.platform.requests_of("streams")] == ["/internal/edge/wake"] * 2 * asleep


def test_a_head_request_is_forwarded_as_head(world: World) -> None:
    answer = world.send("HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("asleep", [False, True])
def test_a_websocket_is_proxied(world: World, asleep: bool) -> None:
    if asleep:
        world.platform.answers["streams"] = world.platform.answers["api"]
        world.platform.answers["api"] = (202, {})
    with websocket(world) as connection:
        for word in (b"one", b"two" * 10_000):
            connection.sendall(word)
            assert receive(connection, len(word)) == word
    for _, headers, _ in world.platform.requests_of("api"):
        assert "upgrade" not in headers


@pytest.mark.parametrize("status", [403, 404, 503])
def test_error_responses_of_the_platform_are_forwarded(world: World, status: int) -> None:
    world.platform.answers["api"] = (status, {"Retry-After": "2"})
    answer = world.send("POST", "/x", content=b"body")
    assert (answer.status_code, answer.text) == (status, "the platform's own answer")
    assert answer.headers["retry-after"] == "2"
    world.platform.answers |= {"api": (202, {}), "streams": (status, {})}
    assert world.send("GET").status_code == status


def test_a_closed_port_is_reported(world: World) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        world.platform.answers["api"] = (200, {"X-Upstream": f"127.0.0.1:{unused.getsockname()[1]}"})
        answer = world.send("GET")
        assert answer.status_code == 502
        assert answer.json()["error"] == answer.json()["code"] == "port_closed"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        page = world.send("GET", headers={"Accept": "text/html,*/*"})
        assert page.status_code == 502
        assert page.headers["content-type"].startswith("text/html")
        assert "nothing answers on this port" in page.text


def test_an_unavailable_platform_is_not_reported_as_a_closed_port(world: World) -> None:
    with world.without("api"):
        answer = world.send("GET")
    assert (answer.status_code, answer.json()["error"]) == (503, "service_unavailable")


def test_internal_routes_are_not_reachable_under_any_host_name(world: World) -> None:
    word = edge_secret(world.instance.settings({}).secret_key)
    for host in ("127.0.0.1", "localhost", "evil.example"):
        answer = world.send(
            "GET", "/internal/edge/port", host=host, headers={"X-Edge": f"{word} {HASH}.localhost 127.0.0.1 {word}"}
        )
        assert answer.status_code == 404
    assert world.platform.requests == []
    # Under the host name of a port it is a path of the program.
    assert world.send("GET", "/internal/edge/port").json()["path"] == "/internal/edge/port"


def test_host_names_outside_the_public_domain_are_unknown_pages(world: World) -> None:
    for host in ("a.b.localhost", f"{HASH}.localhost.evil.example", f"{HASH}.example"):
        found = world.send("GET", "/x", host=host)
        assert (found.status_code, found.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert world.platform.requests == []


def test_hosts_that_the_operator_allows_are_the_platforms(make_instance: Callable[[str], Instance]) -> None:
    instance = make_instance("hosts")
    every = caddyfile(instance.settings({"PLATFORM_ALLOWED_HOSTS": "*"}), instance.run_dir)
    assert "@foreign not path *" in every
    some = caddyfile(
        instance.settings({"PLATFORM_ALLOWED_HOSTS": ".example.org,vm.example.net,[::1]"}), instance.run_dir
    )
    (pattern,) = re.findall(r"@foreign not vars_regexp \{http.request.host\} (.*)", some)
    for host in ("example.org", "a.b.example.org", "VM.example.net", "vm.example.net.", "::1", "[::1]", "127.0.0.1"):
        assert re.search(pattern, host), host
    for host in ("notexample.org", "example.org.evil", "a.vm.example.net", "vmxexample.net", "::11", ""):
        assert not re.search(pattern, host), host


def test_production_addresses(make_instance: Callable[[str], Instance]) -> None:
    instance = make_instance("tls")
    given = {"PLATFORM_BASE_URL": "https://vm.example.org", "PLATFORM_PUBLIC_URL": "https://{hash}.apps.example.org"}
    files = {"PLATFORM_PUBLIC_CERTIFICATE": "/etc/c.pem", "PLATFORM_PUBLIC_KEY": "/etc/k.pem"}
    made = caddyfile(instance.settings({**given, **files}), instance.run_dir)
    assert "https://*.apps.example.org {" in made
    assert "tls /etc/c.pem /etc/k.pem" in made
    behind = caddyfile(instance.settings({**given, "PLATFORM_BEHIND_PROXY": "true"}), instance.run_dir)
    assert f"http://*.apps.example.org:{instance.port}, http://*.apps.example.org.:{instance.port} {{" in behind
    assert "-X-Forwarded" not in behind
    with pytest.raises(ValueError, match="PLATFORM_PUBLIC_KEY"):
        caddyfile(instance.settings(given), instance.run_dir)
    with pytest.raises(InstanceError, match=r"PLATFORM_PUBLIC_URL.*https://\{hash\}"):
        instance.settings({"PLATFORM_PUBLIC_URL": "https://apps.example.org/{hash}"})
