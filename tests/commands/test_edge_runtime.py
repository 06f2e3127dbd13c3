"""Addresses of the runtime at the edge, by path and by host: a real Caddy in front of stub servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from common.edge_header import EdgeFacts, edge_facts
from edge.addresses import RUNTIME_PATH, RuntimeAddress
from edge.caddy import caddyfile
from supervise.instance import load_instance
from tests.commands.conftest import short_folder
from tests.commands.machines import World, open_world
from tests.commands.test_edge_sandboxes import exchange, own_host
from tests.free_ports import free_port
from workspaces.data_plane import cors

NAME = "runtime.localhost"
ID = "ws_2345abcd2345abcd"
LABEL = "ws-2345abcd2345abcd.localhost"
HEADERS = {"Authorization": "Bearer rtg_mine"}
# The three kinds of address, and the path that each becomes.
PLACES = {"path": "/r", "own name": "/r", "name of a workspace": f"/r/{ID}"}
every_place = pytest.mark.parametrize("by", PLACES)


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with short_folder() as folder:
        given = {"PLATFORM_RUNTIME_URL": f"http://{NAME}"}
        with open_world(load_instance(folder / "edge", free_port()), given) as made:
            yield made


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.reset()
    shared_world.platform.answers["streams"] = (200, {"Access-Control-Allow-Origin": "*"})
    return shared_world


def send(world: World, by: str, path: str, method: str = "POST", **request: Any) -> httpx.Response:
    headers = {**HEADERS, **request.pop("headers", {})}
    host = {"path": own_host(world), "own name": NAME, "name of a workspace": LABEL}[by]
    prefix = "/r" if by == "path" else ""
    answer: httpx.Response = world.send(method, prefix + path, host=host, headers=headers, **request)
    return answer


@every_place
@pytest.mark.parametrize("path", ["/health", "/files?path=%2Fa&b", "/proxy/8080/a%2Fb/%C3%A9", "/", "/ws?token=rtg_x"])
def test_each_address_leads_to_the_runtime_at_streams(world: World, by: str, path: str) -> None:
    answer = send(world, by, path, content=b"abc")
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    ((seen, headers, body),) = world.platform.requests_of("streams")
    assert (seen, headers["authorization"], body) == (PLACES[by] + path, "Bearer rtg_mine", "abc")
    assert headers["host"].partition(":")[0] == "127.0.0.1"
    assert not world.platform.requests_of("api")


@pytest.mark.parametrize("by", ["own name", "name of a workspace"])
def test_the_platform_learns_the_real_client_and_not_what_it_claims(world: World, by: str) -> None:
    forged = {"X-Edge": "lie localhost 9.9.9.9 lie", "X-Forwarded-For": "9.9.9.9", "X-Client-ID": "cli_1"}
    send(world, by, "/health", headers=forged)
    ((_, headers, _),) = world.platform.requests_of("streams")
    facts = edge_facts(headers["x-edge"], world.instance.settings({}).secret_key)
    assert isinstance(facts, EdgeFacts)
    assert facts.forwarded == "127.0.0.1"
    assert "x-client-id" not in headers
    assert "9.9.9.9" not in headers["x-forwarded-for"]


@pytest.mark.parametrize("host", [NAME, LABEL])
@pytest.mark.parametrize("path", ["/../workspace/ws_a", "/%2e%2e/workspace/ws_a/overlay", "//x", "/r/ws_b/x"])
def test_no_path_leads_out_of_the_runtime_that_the_host_names(world: World, host: str, path: str) -> None:
    exchange(world, f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    for seen, _, _ in world.platform.requests_of("streams"):
        assert seen.startswith("/r/")
    assert not world.platform.requests_of("api")


@pytest.mark.parametrize("name", ["ws-2345abcd2345abcd.evil.example", "ws-short.localhost", f"x{LABEL}", f"a.{LABEL}"])
def test_other_names_are_no_workspaces(world: World, name: str) -> None:
    world.platform.answers["api"] = (404, {})
    world.send("POST", "/health", host=name, headers=HEADERS)
    assert not world.platform.requests_of("streams")


@every_place
def test_bodies_are_not_held_back_and_have_no_limit_of_the_apis(world: World, by: str) -> None:
    assert send(world, by, "/files/transfer/upload", content=b"x" * (11 << 20)).status_code == 200
    assert len(world.platform.requests_of("streams")[0][2]) == 11 << 20


@every_place
def test_a_page_can_read_the_edges_own_errors_and_its_preflight_is_answered(world: World, by: str) -> None:
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "DELETE"}
    with world.without("streams"):
        failed = send(world, by, "/files")
        preflight = send(world, by, "/files", "OPTIONS", headers=asked)
    assert (failed.status_code, failed.json()["code"]) == (503, "service_unavailable")
    assert preflight.status_code == 204
    methods, headers = cors.ALLOWED[RUNTIME_PATH]
    assert preflight.headers["Access-Control-Allow-Methods"] == methods
    assert preflight.headers["Access-Control-Allow-Headers"] == headers
    for answer in (failed, preflight):
        assert {name: answer.headers.get(name) for name in cors.HEADERS} == cors.HEADERS


def test_a_name_of_its_own_has_a_certificate_as_the_base_url(world: World) -> None:
    given = {
        "PLATFORM_BASE_URL": "https://vm.example.org", "PLATFORM_PUBLIC_URL": "https://{hash}.apps.example.org",
        "PLATFORM_PUBLIC_CERTIFICATE": "/c.pem", "PLATFORM_PUBLIC_KEY": "/k.pem",
        "PLATFORM_RUNTIME_URL": "https://runtime.example.org",
    }  # fmt: skip
    made = caddyfile(world.instance.settings(given), world.instance.run_dir)
    assert "\nhttps://runtime.example.org {\n" in made


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("http://vm.example.org", "another host than PLATFORM_BASE_URL"),
        ("https://runtime.example.org", "only if PLATFORM_BASE_URL is"),
    ],
)
def test_what_cannot_be_served_is_refused(world: World, url: str, match: str) -> None:
    given = {"PLATFORM_BASE_URL": "http://vm.example.org", "PLATFORM_RUNTIME_URL": url}
    with pytest.raises(ValueError, match=match):
        caddyfile(world.instance.settings(given), world.instance.run_dir)


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("https://vm.example.org/r", "https://vm.example.org/r"),
        ("https://vm.example.org/r/{id}", f"https://vm.example.org/r/{ID}"),
        ("https://runtime.example.org:8443", "https://runtime.example.org:8443"),
        ("https://{id}.apps.example.org", "https://ws-2345abcd2345abcd.apps.example.org"),
    ],
)
def test_an_address_is_made_of_the_setting(template: str, url: str) -> None:
    assert RuntimeAddress.of(template).url(ID) == url


@pytest.mark.parametrize(
    "template",
    ["", "runtime.example.org", "https://x.example.org/run", "https://x.org/r/{hash}", "https://{id}", "ftp://x/r y"],
)
def test_an_address_that_is_none_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="Give an address"):
        RuntimeAddress.of(template)
