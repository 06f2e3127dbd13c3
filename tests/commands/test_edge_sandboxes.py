"""Addresses of sandboxes at the edge, by path and by host: a real Caddy in front of stub servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from common.edge_header import EdgeFacts, edge_facts
from edge.addresses import SANDBOX_PATH
from edge.caddy import caddyfile
from tests.commands.machines import World, open_shared_world
from workspaces.data_plane import cors

ID = "sbx_2345abcd2345abcd"
HOST = "sbx-2345abcd2345abcd.localhost"
HEADERS = {"Authorization": "Bearer sbt_mine"}
HEADERS_OF_ALL = cors.HEADERS


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with open_shared_world() as made:
        yield made


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.reset()
    shared_world.platform.answers["streams"] = (200, {"Access-Control-Allow-Origin": "*"})
    return shared_world


def own_host(world: World) -> str:
    return f"127.0.0.1:{world.instance.port}"


def exchange(world: World, head: str) -> bytes:
    """What comes back first for a request sent byte by byte as it is."""
    parts = urlsplit(world.base)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=120) as connection:
        connection.sendall(head.encode())
        return connection.recv(65536)


def send(world: World, by: str, path: str, **request: Any) -> Any:
    """To the sandbox's address and `path`."""
    headers = {**HEADERS, **request.pop("headers", {})}
    if by == "path":
        return world.send("POST", f"/s/{ID}{path}", host=own_host(world), headers=headers, **request)
    return world.send("POST", path or "/", host=HOST if by == "host" else by, headers=headers, **request)


@pytest.mark.parametrize("by", ["path", "host", f"{HOST}:8000", HOST.upper()])
@pytest.mark.parametrize("path", ["/files/list", "/files/list?a=%2F&b", "/a%2Fb/%C3%A9", "/", "/ws?token=sbt_mine"])
def test_both_addresses_lead_to_the_sandbox_at_streams(world: World, by: str, path: str) -> None:
    answer = send(world, by, path, json={"dirPath": "/"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    ((seen, headers, body),) = world.platform.requests_of("streams")
    # Django takes the id in any case.
    assert (seen[: len(f"/s/{ID}")].lower(), seen[len(f"/s/{ID}") :]) == (f"/s/{ID}", path)
    assert (headers["authorization"], body) == ("Bearer sbt_mine", '{"dirPath":"/"}')
    assert headers["host"].partition(":")[0] == "127.0.0.1"
    assert not world.platform.requests_of("api")


def test_the_platform_learns_the_real_client_and_not_what_it_claims(world: World) -> None:
    forged = {"X-Edge": "lie localhost 9.9.9.9 lie", "X-Forwarded-For": "9.9.9.9", "X-Client-ID": "cli_1"}
    send(world, "host", "/files/list", headers=forged)
    ((_, headers, _),) = world.platform.requests_of("streams")
    assert edge_facts(headers["x-edge"], world.instance.settings({}).secret_key) == EdgeFacts(HOST, "127.0.0.1")
    assert "x-client-id" not in headers
    assert "9.9.9.9" not in headers["x-forwarded-for"]


@pytest.mark.parametrize(
    "path", ["/../../workspace/ws_a/overlay", "/%2e%2e/%2e%2e/workspace/ws_a/overlay", "//x", "/s/sbx_b/x"]
)
def test_no_path_leads_out_of_the_sandbox_that_the_host_names(world: World, path: str) -> None:
    """The path is sent as it is written; what Django makes of it begins with this sandbox's address."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    exchange(world, head)
    for seen, _, _ in world.platform.requests_of("streams"):
        assert seen.startswith(f"/s/{ID}/")
    assert not world.platform.requests_of("api")


@pytest.mark.parametrize("name", ["sbx-2345abcd2345abcd.evil.example", "sbx-short.localhost", f"x{HOST}", f"a.{HOST}"])
def test_other_names_are_no_sandboxes(world: World, name: str) -> None:
    world.platform.answers["api"] = (404, {})
    world.send("POST", "/files/list", host=name, headers=HEADERS)
    assert not world.platform.requests_of("streams")


@pytest.mark.parametrize("by", ["path", "host"])
def test_bodies_are_not_held_back_and_have_no_limit_of_the_apis(world: World, by: str) -> None:
    answer = send(world, by, "/files/upload", content=b"x" * (11 << 20))
    assert answer.status_code == 200
    assert len(world.platform.requests_of("streams")[0][2]) == 11 << 20


def cors_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: answer.headers.get(name, "") for name in HEADERS_OF_ALL}


@pytest.mark.parametrize("by", ["path", "host"])
def test_a_page_can_read_the_edges_own_errors(world: World, by: str) -> None:
    """As those of the platform; a browser hides an answer without these headers from it, and the status too."""
    with world.without("streams"):
        answer = send(world, by, "/files/list", json={"dirPath": "/"})
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
    assert cors_headers(answer) == HEADERS_OF_ALL


@pytest.mark.parametrize("by", ["path", "host"])
def test_a_preflight_is_answered_while_streams_is_away(world: World, by: str) -> None:
    """Else the page would not learn of the error of the request after it."""
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    path, host = (f"/s/{ID}/files/list", own_host(world)) if by == "path" else ("/files/list", HOST)
    with world.without("streams"):
        answer = world.send("OPTIONS", path, host=host, headers=asked)
    assert (answer.status_code, cors_headers(answer)) == (204, HEADERS_OF_ALL)
    methods, headers = cors.ALLOWED[SANDBOX_PATH]
    assert answer.headers["Access-Control-Allow-Methods"] == methods
    assert answer.headers["Access-Control-Allow-Headers"] == headers


def test_a_body_that_is_cut_off_at_a_sandbox_is_an_error_that_a_page_can_read(world: World) -> None:
    head = f"POST /s/{ID}/files/list HTTP/1.1\r\nHost: {own_host(world)}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    answer = exchange(world, head)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"Access-Control-Allow-Origin: *" in answer


def test_errors_of_other_addresses_are_for_pages_of_their_own_origin(world: World) -> None:
    with world.without("streams"):
        answer = world.send("GET", "/events", host=own_host(world))
    assert answer.status_code == 503
    assert "access-control-allow-origin" not in answer.headers
    with world.without("api"):
        answer = world.send("GET", "/")
    assert answer.status_code == 503
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("by", ["path", "host"])
def test_an_upgrade_is_proxied(world: World, by: str) -> None:
    target, host = (f"/s/{ID}/", own_host(world)) if by == "path" else ("/", HOST)
    lines = [
        f"GET {target}?token=sbt_mine HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    exchange(world, "\r\n".join(lines) + "\r\n\r\n")
    ((seen, headers, _),) = world.platform.requests_of("streams")
    assert seen == f"/s/{ID}/?token=sbt_mine"
    assert (headers["upgrade"], headers["connection"].lower()) == ("websocket", "upgrade")


def test_sandboxes_by_host_have_the_certificate_of_the_public_ports(world: World) -> None:
    given = {
        "PLATFORM_BASE_URL": "https://vm.example.org", "PLATFORM_PUBLIC_URL": "https://{hash}.apps.example.org",
        "PLATFORM_SANDBOX_URL": "https://{id}.apps.example.org", "PLATFORM_PUBLIC_CERTIFICATE": "/c.pem",
        "PLATFORM_PUBLIC_KEY": "/k.pem",
    }  # fmt: skip
    made = caddyfile(world.instance.settings(given), world.instance.run_dir)
    assert r"(?i)^sbx-([2-7a-z]{16})\.apps\.example\.org\.?(:[0-9]{1,5})?$" in made
    assert "header_up Host vm.example.org" in made
