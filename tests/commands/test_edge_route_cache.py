"""Routes that the edge finds without a request: a real Caddy and the folders of its route cache."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.route_cache import RouteCache, route_cache_folder, this_second
from tests.commands.machines import (
    HASH,
    LONG,
    World,
    cache_route,
    cache_route_for_long,
    open_shared_world,
    receive,
    websocket,
)


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with open_shared_world() as made:
        yield made


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.reset()
    route_cache_folder(shared_world.instance.run_dir).mkdir()
    # A request to the platform is visible as a 404.
    shared_world.platform.answers["api"] = (404, {})
    return shared_world


def folder(world: World) -> Path:
    return route_cache_folder(world.instance.run_dir)


def test_a_cached_route_of_this_second_is_used_without_a_request(world: World) -> None:
    cache_route_for_long(world)
    forged = {"X-Edge-Secret": "lie", "X-Upstream": "127.0.0.1:1", "X-Client-ID": "cli_1", "X-Forwarded-For": "9.9.9.9"}
    seen = world.send("GET", "/a/b?c=%2F&d", headers={**forged, "Cookie": "theirs=2", "X-Client-Secret": "s"}).json()
    assert (seen["method"], seen["path"]) == ("GET", "/a/b?c=%2F&d")
    head = seen["headers"]
    assert (head["host"], head["cookie"]) == (f"{HASH}.localhost", "theirs=2")
    assert (head["x-forwarded-for"], head["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert not [name for name in head if name.startswith(("x-edge", "x-client-"))]
    assert world.platform.requests == []


def test_bodies_and_websockets_use_the_cached_route(world: World) -> None:
    cache_route_for_long(world)
    body = bytes(range(256)) * 40_000
    for content in (body, iter([body[:5_000_000], body[5_000_000:]])):
        seen = world.send("POST", "/upload", content=content).json()
        assert (seen["size"], seen["sum"]) == (len(body), sum(body) % 65521)
    with websocket(world) as connection:
        connection.sendall(b"one")
        assert receive(connection, 3) == b"one"
    assert world.platform.requests == []


def test_a_name_with_a_port_and_a_slug_is_found(world: World) -> None:
    cache_route_for_long(world)
    cache_route_for_long(world, label=f"my-app-{HASH}")
    for name in (f"{HASH}.localhost:{world.instance.port}", f"my-app-{HASH}.localhost"):
        assert world.send("GET", host=name).status_code == 200
    assert world.platform.requests == []


def test_a_cached_route_of_another_second_is_not_used(world: World) -> None:
    now = this_second()
    cache_route(world, range(now - LONG, now))
    cache_route(world, range(now + LONG, now + LONG + 2))
    assert world.send("GET").status_code == 404
    assert len(world.platform.requests_of("api")) == 1


def test_a_cached_route_expires_without_invalidation(world: World) -> None:
    answers = RouteCache(folder(world))
    answers.store(this_second(), HASH, world.machine)
    while world.send("GET").status_code != 200:
        answers.store(this_second(), HASH, world.machine)
    world.platform.requests.clear()
    deadline = time.monotonic() + 120
    while world.send("GET").status_code == 200:
        assert time.monotonic() < deadline
    assert len(world.platform.requests_of("api")) == 1


def test_an_invalidated_route_is_requested_at_once(world: World) -> None:
    other = "b" * 20
    cache_route_for_long(world)
    cache_route_for_long(world, label=other)
    assert world.send("GET").status_code == 200
    RouteCache(folder(world)).invalidate([HASH])
    assert world.send("GET").status_code == 404
    assert world.send("GET", host=f"{other}.localhost").status_code == 200


@pytest.mark.parametrize(
    "label",
    [
        "*",
        "?" * 20,
        f"{HASH[:-1]}*",
        f"{HASH[:-1]}?",
        f"{HASH[:-1]}[a]",
        "[a-z]" * 20,
        f"\\{HASH}",
        HASH.upper(),
        f"{HASH}%2f..%2f{HASH}",
        f"%2e%2e%2f{HASH}",
        "%61" * 20,
        "{http.request.uuid}",
        "x" * 300,
        "*" * 5000,
        "..",
        f"../{HASH}",
        f"{HASH}/.",
        "",
    ],
)
def test_a_label_that_is_not_cached_exactly_matches_no_machine(world: World, label: str) -> None:
    cache_route_for_long(world)
    assert world.send("GET", host=f"{label}.localhost").status_code in (400, 404)
    assert world.send("GET").status_code == 200


def test_only_a_file_in_a_folder_named_by_the_label_is_a_cached_route(world: World) -> None:
    for second in range(this_second(), this_second() + LONG):
        (folder(world) / str(second)).mkdir()
        (folder(world) / str(second) / HASH).touch()
        (folder(world) / str(second) / ("b" * 20) / world.machine).mkdir(parents=True)
    for name in (HASH, "b" * 20):
        assert world.send("GET", host=f"{name}.localhost").status_code == 404
    assert len(world.platform.requests) == 2


def test_a_closed_port_of_a_cached_route_is_reported(world: World) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cache_route_for_long(world, f"127.0.0.1:{unused.getsockname()[1]}")
        answer = world.send("GET")
        assert (answer.status_code, answer.json()["code"]) == (502, "port_closed")
        assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_cached_routes_expire_when_the_platform_is_down(world: World) -> None:
    with world.without("api"):
        now = this_second()
        cache_route(world, range(now, now + 3))
        deadline = time.monotonic() + 120
        while (answer := world.send("GET")).status_code == 200:
            assert time.monotonic() < deadline
    assert (answer.status_code, answer.json()["code"]) == (503, "service_unavailable")
