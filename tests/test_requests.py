"""What holds for every route: which requests it refuses, and the one shape of every error."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from django.test import Client

from tests.callers import Caller
from tests.openapi import body_fields
from tests.route import Route
from tests.routes import ROUTES, every_route
from tests.world import World, assert_error
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db
VALUES = (None, True, -1, 0.5, 10**400, "", "x" * 5000, [], [[]], {}, {"a": [{}]}, "\ud83d\ude00")


@every_route
def test_other_methods_are_405(world: World, route: Route) -> None:
    here = {other.method for other in ROUTES if other.path == route.path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"} - here:
        answer = world.owner.send(method, route.at(**world.ids))
        assert_error(answer, 405, "method_not_allowed")
        assert here <= set(answer["Allow"].replace(" ", "").split(","))


@pytest.mark.parametrize(
    "path",
    ["/", "/nothing", "/workspace/", "/workspace/ws_x/nothing", "/workspace/a.b", "/workspace/%2e%2e", "/tokens/x"],
)
def test_an_unknown_route_is_404(api: Caller, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert_error(api.send(method, path), 404, "not_found")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.is_addressed], ids=str)
def test_an_identifier_that_no_database_holds_is_404(world: World, route: Route) -> None:
    path = route.at(**dict.fromkeys(world.ids, "a%00b"))
    assert_error(world.owner.send(route.method, path, {} if route.reads else None), 404)


MALFORMED = [
    b"{broken",
    b'{"a": 1}{"b": 2}',
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"a": "\\u0000"}',
    b'{"a": "\\ud800"}',
    b"\xff\xfe{}",
    b"[" * 50_000,
    b"[1]",
    b'"text"',
    b"null",
    b"9" * 5000,
]
OTHER_TYPES = ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]


@pytest.mark.parametrize("route", [route for route in ROUTES if route.reads], ids=str)
def test_a_malformed_body_is_400(world: World, route: Route) -> None:
    world.workspace.status = Status.RUNNING
    world.workspace.ready, world.workspace.provisioning_state = True, "ready"
    world.workspace.save()
    refused = {body[:20]: world.send(route, world.owner.headers, body) for body in MALFORMED}
    assert {body for body, answer in refused.items() if answer.status_code != 400} == set()
    for answer in refused.values():
        assert_error(answer, 400)


@every_route
def test_a_body_that_is_too_large_is_413(world: World, route: Route) -> None:
    answer = world.send(route, world.owner.headers, b'{"a": "' + b"x" * (11 << 20) + b'"}')
    if route.reads and route.path.endswith("/overlay/files"):
        assert_error(answer, 409, "vm_not_running")  # its limit is higher
        answer = world.send(route, world.owner.headers, b"{}", CONTENT_LENGTH="99999999")
    assert_error(answer, 413, "payload_too_large")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.reads], ids=str)
def test_another_content_type_is_415(world: World, route: Route) -> None:
    Workspace.objects.update(status=Status.RUNNING)
    for kind in OTHER_TYPES:
        answer = world.send(route, world.owner.headers, "a=b", content_type=kind)
        assert_error(answer, 415, "unsupported_media_type")


@every_route
def test_an_empty_body_with_a_content_type_is_no_error_of_form(world: World, route: Route) -> None:
    answer = world.send(route, world.owner.headers)
    assert answer.status_code != 415
    if answer.streaming:
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
        assert answer["X-Request-ID"]
        return
    if not route.path.endswith("/overlay/files"):  # whose body is required
        assert answer.json().get("code") != "invalid_json"
    if answer.status_code >= 400:
        assert_error(answer, answer.status_code)
    else:
        assert answer.json()["success"] is True
        assert answer["X-Request-ID"]


@every_route
def test_values_of_every_kind_never_break_a_route(world: World, route: Route) -> None:
    Workspace.objects.update(status=Status.RUNNING)
    fields = [*body_fields(route), *((name,) for name in route.fields), ("no-such-field",)]
    for path, value in product(fields, VALUES):
        sent = {"cmd": "true", "path": "/x", "content": "", "scope": "account", **nested(path, value)}
        if route.path.endswith("/exec") and path != ("cmd",):
            sent.pop("cmd")  # nothing shall run
        answer = world.send(route, world.owner.headers, json.dumps(sent))
        assert answer.status_code != 500, (path, value)
        if answer.status_code >= 400:
            assert_error(answer, answer.status_code)


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """`value` at that path, in objects of nothing else."""
    for name in reversed(path):
        value = {name: value}
    return value


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_the_document_shows_the_body_of_each_route_that_reads_one(route: Route) -> None:
    shown = bool(body_fields(route))
    # OpenAPI knows no body of a DELETE; what one reads can also be given in the query.
    assert (bool(route.fields), shown) == (route.reads, False) if route.method == "DELETE" else shown == route.reads


def test_no_depth_of_nesting_breaks_a_route(api: Caller) -> None:
    # A value of a choice is shown in the error; what can be parsed may be too deep to show.
    for levels in range(860, 1000):
        workload = f'{{"name": "w", "cmd": ["x"], "restart_policy": {"[" * levels}{"]" * levels}}}'
        assert_error(api.send("POST", "/workspace", f'{{"config": {{"workloads": [{workload}]}}}}'), 400)


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "a b", "testserver:x", "[::", ""])
def test_a_lying_host_header_is_400(api: Caller, host: str) -> None:
    answer = api.client.get("/workspace", headers={**api.headers, "Host": host})
    assert_error(answer, 400, "validation_error")


@pytest.mark.parametrize(
    ("sent", "kept"), [("abc-1", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("ü", False)]
)
def test_the_callers_request_id_is_kept_where_it_is_sane(api: Caller, sent: str, kept: bool) -> None:
    for path in ("/workspace", "/nothing"):
        answer = api.get(path, X_Request_ID=sent)
        assert (answer["X-Request-ID"] == sent) is kept
        assert answer["X-Request-ID"]


def test_health_needs_no_credentials(db: None) -> None:
    answer = Client().get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"success": True, "database": True, "redis": True}


def test_an_odd_accept_header_is_answered_with_json(api: Caller) -> None:
    for accept in ("text/html", "application/xml;q=0.1", "nonsense", "*/*;version=9"):
        assert api.get("/workspace", Accept=accept).json()["success"] is True


def test_an_unexpected_exception_is_internal_error_without_details(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workspaces import selectors

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(selectors, "listed_workspaces", broken)
    monkeypatch.setattr(selectors, "get_workspace", broken)
    for path in ("/workspace", "/workspace/x", "/workspace/x/overlay/files?path=/x"):
        answer = api.get(path)
        assert_error(answer, 500, "internal_error")
        assert b"secret" not in answer.content
