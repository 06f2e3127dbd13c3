"""What holds for every route: who may call it, which requests it refuses, and the one shape of every error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core import signing
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve

from accounts import tokens
from accounts.hooks import Pin
from accounts.models import Credential
from accounts.scopes import Actor, Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db

ACCOUNT, NAMESPACE, WORKSPACE, BILLING = Scope.ACCOUNT, Scope.NAMESPACE, Scope.WORKSPACE, Scope.BILLING
RESOURCE = frozenset({ACCOUNT, NAMESPACE, WORKSPACE})
# Routes without credentials of ours: they tell nothing, or are staff's and have Django's own login.
OPEN = {"healthz", "openapi.json", "docs"}
# The edge's questions, which carry a secret (tests/workspaces/network/test_edge.py).
EDGE = {"internal/edge/port", "internal/edge/wake"}


@dataclass(frozen=True)
class Route:
    """One method of one route. `reads`: it takes a JSON body. `tokens`: access tokens are enough."""

    method: str
    path: str
    scopes: frozenset[Scope] = RESOURCE
    tokens: bool = True
    reads: bool = False

    def at(self, **ids: str) -> str:
        return "/" + self.path.format(**{"name": "boot.log", "source": "boot", "port": "8080", **ids})

    @property
    def is_addressed(self) -> bool:
        return "{" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


W = "workspace/{workspace_id}"
ROUTES = [
    Route("POST", "tokens", tokens=False, reads=True),
    Route("POST", "credentials", scopes=frozenset({ACCOUNT}), tokens=False, reads=True),
    Route("DELETE", "credentials/{credential_id}", scopes=frozenset({ACCOUNT}), tokens=False),
    Route("POST", "credentials/{credential_id}/rotate", scopes=frozenset({ACCOUNT}), tokens=False),
    Route("POST", "workspace", scopes=frozenset({ACCOUNT, NAMESPACE}), reads=True),
    Route("GET", "workspace"),
    Route("GET", "workspace/quota", scopes=frozenset({ACCOUNT, NAMESPACE})),
    Route("GET", "workspace/images", scopes=frozenset(Scope)),
    Route("GET", W),
    Route("PUT", W, reads=True),
    Route("DELETE", W),
    Route("GET", f"{W}/details"),
    Route("POST", f"{W}/provisioning/retry"),
    Route("POST", f"{W}/start", reads=True),
    Route("POST", f"{W}/stop"),
    Route("POST", f"{W}/restart"),
    Route("POST", f"{W}/pause"),
    Route("POST", f"{W}/resume"),
    Route("POST", f"{W}/reinstall"),
    Route("GET", f"{W}/lifecycle"),
    Route("DELETE", f"{W}/lifecycle"),
    Route("PUT", f"{W}/lifecycle/idle", reads=True),
    Route("POST", f"{W}/lifecycle/permanent", reads=True),
    Route("POST", f"{W}/lifecycle/temporary", reads=True),
    Route("PUT", f"{W}/lifecycle/ttl", reads=True),
    Route("POST", f"{W}/ping", reads=True),
    Route("GET", f"{W}/metadata"),
    Route("PUT", f"{W}/metadata", reads=True),
    Route("PATCH", f"{W}/metadata", reads=True),
    Route("GET", f"{W}/resources"),
    Route("PUT", f"{W}/resources", reads=True),
    Route("PATCH", f"{W}/resources", reads=True),
    Route("PUT", f"{W}/overlay/resize", reads=True),
    Route("GET", "workspace/usage"),
    Route("GET", "workspace/activity"),
    Route("GET", f"{W}/usage"),
    Route("DELETE", f"{W}/usage"),
    Route("GET", f"{W}/usage/totals"),
    Route("GET", f"{W}/usage/credits/chart"),
    Route("POST", f"{W}/usage/tracking/start"),
    Route("POST", f"{W}/usage/tracking/stop"),
    Route("GET", f"{W}/stats"),
    Route("GET", f"{W}/info"),
    Route("GET", f"{W}/config"),
    Route("GET", f"{W}/network"),
    Route("PUT", f"{W}/network", reads=True),
    Route("PATCH", f"{W}/network", reads=True),
    Route("GET", f"{W}/public-access"),
    Route("POST", f"{W}/public-access", reads=True),
    Route("DELETE", f"{W}/public-access/{{port}}"),
    Route("GET", f"{W}/ssh"),
    Route("POST", f"{W}/ssh/enable"),
    Route("POST", f"{W}/ssh/disable"),
    Route("POST", f"{W}/ssh/key", reads=True),
    Route("POST", f"{W}/exec", reads=True),
    Route("GET", f"{W}/overlay"),
    Route("GET", f"{W}/overlay/files"),
    Route("POST", f"{W}/overlay/files", reads=True),
    Route("GET", f"{W}/overlay/usage"),
    Route("POST", f"{W}/overlay/sync"),
    Route("GET", f"{W}/logs"),
    Route("DELETE", f"{W}/logs"),
    Route("GET", f"{W}/logs/list"),
    Route("GET", f"{W}/logs/file/{{name}}"),
    Route("GET", f"{W}/logs/stream/{{source}}"),
    Route("GET", f"{W}/stats/stream"),
]
# A plain view does not say which methods it takes.
PLAIN_VIEWS = {
    f"{W}/overlay/files": {"GET", "POST"},
    f"{W}/logs/file/{{name}}": {"GET"},
    f"{W}/logs/stream/{{source}}": {"GET"},
    f"{W}/stats/stream": {"GET"},
}
# The documented routes that exist; a documented route that is built comes onto this list.
DOCUMENTED = """
POST /workspace
POST /workspace/:id/provisioning/retry
GET /workspace
GET /workspace/:workspaceId
GET /workspace/:workspaceId/details
PUT /workspace/:workspaceId
DELETE /workspace/:workspaceId
GET /workspace/quota
GET /workspace/:workspaceId/logs
DELETE /workspace/:workspaceId/logs
GET /workspace/:workspaceId/logs/list
GET /workspace/:workspaceId/logs/file/:name
GET /workspace/:workspaceId/logs/stream/boot
GET /workspace/:workspaceId/logs/stream/cmd
GET /workspace/:workspaceId/stats/stream
GET /workspace/:workspaceId/overlay
GET /workspace/:workspaceId/overlay/files
POST /workspace/:workspaceId/overlay/files
GET /workspace/:workspaceId/overlay/usage
POST /workspace/:workspaceId/overlay/sync
POST /workspace/:workspaceId/start
POST /workspace/:workspaceId/stop
POST /workspace/:workspaceId/restart
POST /workspace/:workspaceId/pause
POST /workspace/:workspaceId/resume
POST /workspace/:workspaceId/reinstall
GET /workspace/:workspaceId/lifecycle
DELETE /workspace/:workspaceId/lifecycle
PUT /workspace/:workspaceId/lifecycle/idle
POST /workspace/:workspaceId/lifecycle/permanent
POST /workspace/:workspaceId/lifecycle/temporary
PUT /workspace/:workspaceId/lifecycle/ttl
POST /workspace/:workspaceId/ping
GET /workspace/images
GET /workspace/:workspaceId/metadata
PUT /workspace/:workspaceId/metadata
PATCH /workspace/:workspaceId/metadata
GET /workspace/:workspaceId/resources
PUT /workspace/:workspaceId/resources
PATCH /workspace/:workspaceId/resources
PUT /workspace/:workspaceId/overlay/resize
GET /workspace/usage
GET /workspace/activity
GET /workspace/:workspaceId/usage
GET /workspace/:workspaceId/usage/totals
GET /workspace/:workspaceId/usage/credits/chart
POST /workspace/:workspaceId/usage/tracking/start
POST /workspace/:workspaceId/usage/tracking/stop
DELETE /workspace/:workspaceId/usage
GET /workspace/:workspaceId/stats
GET /workspace/:workspaceId/info
GET /workspace/:workspaceId/config
"""

CREATE_FIELDS = ["name", "slug", "image", "preset", "namespace", "mode", "config", "type", "cpus", "memory_mb"]
OTHER_FIELDS = ["wait_ready", "idempotency_key", "logo", "force", "cmd", "env", "working_dir", "user", "stdin"]
OTHER_FIELDS += ["ready_timeout_seconds", "timeout_seconds", "path", "content", "scope", "workspaceId", "ttl", "label"]
OTHER_FIELDS += ["suspend_after", "stop_after", "ttl_action", "remove_on_exit", "restart_policy", "ttl_seconds"]
OTHER_FIELDS += ["disk_size_mb", "apply", "size_mb", "public_key", "remove", "metadata"]
OTHER_FIELDS += ["allow_internet", "egress", "egress_ports", "ingress", "ingress_ports", "public_access", "port"]

every_route = pytest.mark.parametrize("route", ROUTES, ids=str)


@dataclass
class World:
    """An account with a workspace whose host is silent, so that nothing that is accepted waits."""

    owner: Caller
    workspace: Workspace
    credential: Credential

    @property
    def ids(self) -> dict[str, str]:
        return {"workspace_id": self.workspace.pk, "credential_id": self.credential.pk}

    def send(self, route: Route, headers: dict[str, str], body: Any = "", **more: Any) -> Any:
        sent = {"content_type": "application/json", "headers": headers, **more}
        return self.owner.client.generic(route.method, route.at(**self.ids), body, **sent)

    def actor(self, scope: Scope = ACCOUNT, pin: Pin | None = None) -> Actor:
        credential = Credential.objects.get(client_id=self.owner.client_id)
        pin = pin or Pin()
        return Actor(self.owner.account, scope, credential.pk, "t", pin.namespace_id, pin.namespace_slug)

    def token(self, *, ttl: int = 900, scope: Scope = ACCOUNT) -> str:
        return tokens.mint(actor=self.actor(), scope=scope, pin=Pin(), ttl=ttl, label="").token


@pytest.fixture
def world(api: Caller, scoped: Callable[..., Caller]) -> World:
    other = scoped(api, ACCOUNT)
    workspace = make_workspace(api.account, status=Status.FAILED, slug="the-workspace")
    return World(api, workspace, Credential.objects.get(client_id=other.client_id))


def assert_error(answer: Any, status: int, code: str | None = None) -> None:
    """The one shape of errors (wire contract, section 1)."""
    assert answer.status_code == status, answer.content[:400]
    assert answer["Content-Type"].split(";")[0] == "application/json"
    body = answer.json()
    assert {"success", "error", "code", "message", "request_id"} <= set(body)
    assert set(body) <= {"success", "error", "code", "message", "request_id", "details"}
    assert body["success"] is False
    assert body["message"]
    assert isinstance(body["message"], str)
    assert body["request_id"] == answer["X-Request-ID"] != ""
    if code is not None:
        assert body["code"] == code
    if body["code"] not in ("unauthorized", "forbidden"):
        assert body["error"] == body["code"]
    else:
        assert body["error"] == body["code"].capitalize()


def assert_unauthorized(answer: Any, route: Route) -> None:
    creates = (route.method, route.path) == ("POST", "workspace")
    assert_error(answer, 401, "MISSING_USER_ID" if creates else "unauthorized")


def existing() -> Iterator[tuple[str, str]]:
    """Every method and route of the URL configuration but the open ones and the admin's."""
    for pattern, path in _flat(get_resolver()):
        if path in OPEN | EDGE or path.startswith("admin/"):
            continue
        methods = getattr(pattern.callback, "actions", None) or PLAIN_VIEWS[path]
        for method in methods:
            if method.upper() != "HEAD":
                yield method.upper(), path


def _flat(resolver: URLResolver, before: str = "") -> Iterator[tuple[URLPattern, str]]:
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _flat(pattern, path) if path != "admin/" else ()
        else:
            yield pattern, re.sub(r"<\w+:(\w+)>", r"{\1}", path)


def test_every_route_has_its_entry_here() -> None:
    assert sorted(existing()) == sorted((route.method, route.path) for route in ROUTES)


@pytest.mark.parametrize("line", DOCUMENTED.strip().splitlines())
def test_every_documented_route_that_exists_is_matched(line: str) -> None:
    method, path = line.split()
    match = resolve(path.replace(":workspaceId", "ws_aaaaaaaaaaaaaaaa").replace(":id", "ws_aaaaaaaaaaaaaaaa"))
    actions = getattr(match.func, "actions", None)
    assert method.lower() in actions if actions else method in PLAIN_VIEWS[f"{W}/overlay/files"]


@every_route
def test_nobody_is_refused(world: World, route: Route) -> None:
    for headers in (
        {},
        {"X-Client-ID": world.owner.client_id},
        {"X-Client-Secret": world.owner.secret},
        {"X-Client-ID": world.owner.client_id, "X-Client-Secret": "wrong"},
        {"X-Client-ID": "cli_unknown", "X-Client-Secret": world.owner.secret},
        {"X-Client-ID": "nul\0byte", "X-Client-Secret": "ü"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nonsense"},
    ):
        assert_unauthorized(world.send(route, headers), route)


@every_route
def test_a_token_that_is_expired_forged_or_changed_is_refused(world: World, route: Route) -> None:
    claims = {"c": world.credential.pk, "e": 1, "s": "account", "n": "", "ns": "", "w": "", "l": "", "x": 1 << 40}
    good = world.token()
    head, _, tail = good.partition(":")
    for token in (
        world.token(ttl=-1),
        signing.dumps(claims, key="another-key", salt="accounts.access-token"),
        signing.dumps(claims, salt="another-purpose"),
        f"{head[:-1]}{'A' if head[-1] != 'A' else 'B'}:{tail}",
        good[:-1] + ("A" if good[-1] != "A" else "Q"),
        good[:20],
    ):
        assert_unauthorized(world.send(route, {"Authorization": f"Bearer {token}"}), route)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.is_addressed], ids=str)
def test_another_accounts_things_do_not_exist(world: World, stranger: Caller, route: Route) -> None:
    assert_error(world.send(route, stranger.headers), 404, "not_found")
    if "workspace_id" in route.path:
        by_slug = route.at(workspace_id=world.workspace.slug)
        assert_error(stranger.send(route.method, by_slug), 404, "not_found")
        assert_error(stranger.send(route.method, route.at(workspace_id="ws_never")), 404, "not_found")
    assert Workspace.objects.filter(pk=world.workspace.pk, status=Status.FAILED).exists()
    assert Credential.objects.filter(pk=world.credential.pk, epoch=1).exists()


@every_route
@pytest.mark.parametrize("scope", [NAMESPACE, WORKSPACE, BILLING])
def test_a_credential_of_the_wrong_level_is_forbidden(
    world: World, scoped: Callable[..., Caller], route: Route, scope: Scope
) -> None:
    pin = {
        "namespace_id": world.workspace.namespace_id,
        "namespace_slug": world.workspace.namespace.slug,
        "workspace_id": world.workspace.pk,
    }
    answer = world.send(route, scoped(world.owner, scope, **pin).headers)
    if scope in route.scopes:
        assert answer.status_code not in (401, 403)
    else:
        assert_error(answer, 403, "forbidden")


@pytest.mark.parametrize("route", [route for route in ROUTES if "workspace_id" in route.path], ids=str)
def test_what_is_outside_of_a_pin_does_not_exist(world: World, scoped: Callable[..., Caller], route: Route) -> None:
    elsewhere = Namespace.objects.create(account=world.owner.account, name="Other", slug="other")
    beside = make_workspace(world.owner.account, namespace=elsewhere)
    for caller in (
        scoped(world.owner, NAMESPACE, namespace_id=elsewhere.pk, namespace_slug="other"),
        scoped(world.owner, WORKSPACE, namespace_id=elsewhere.pk, workspace_id=beside.pk),
    ):
        for identifier in (world.workspace.pk, world.workspace.slug):
            assert_error(caller.send(route.method, route.at(workspace_id=identifier)), 404, "not_found")


@every_route
def test_a_token_is_taken_only_where_one_is_enough(world: World, route: Route) -> None:
    answer = world.send(route, {"Authorization": f"bearer {world.token()}"})
    if route.tokens:
        assert answer.status_code not in (401, 403)
    else:
        assert_error(answer, 403, "forbidden")


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


@pytest.mark.parametrize("route", [route for route in ROUTES if route.reads], ids=str)
@pytest.mark.parametrize(
    "body",
    [
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
    ],
    ids=range(12),
)
def test_a_malformed_body_is_400(world: World, route: Route, body: bytes) -> None:
    world.workspace.status = Status.RUNNING
    world.workspace.ready, world.workspace.provisioning_state = True, "ready"
    world.workspace.save()
    assert_error(world.send(route, world.owner.headers, body), 400)


@every_route
def test_a_body_that_is_too_large_is_413(world: World, route: Route) -> None:
    answer = world.send(route, world.owner.headers, b'{"a": "' + b"x" * (11 << 20) + b'"}')
    if route.path.endswith("/overlay/files"):
        assert_error(answer, 409, "vm_not_running")  # its limit is higher
        answer = world.send(route, world.owner.headers, b"{}", CONTENT_LENGTH="99999999")
    assert_error(answer, 413, "payload_too_large")


@pytest.mark.parametrize("route", [route for route in ROUTES if route.reads], ids=str)
@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"])
def test_another_content_type_is_415(world: World, route: Route, kind: str) -> None:
    Workspace.objects.update(status=Status.RUNNING)
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
    fields = [*CREATE_FIELDS, *OTHER_FIELDS]
    Workspace.objects.update(status=Status.RUNNING)
    for value in (None, True, -1, 0.5, 10**400, "", "x" * 5000, [], [[]], {}, {"a": [{}]}, "\ud83d\ude00"):
        for field in fields if route.reads else fields[:1]:
            sent = {"cmd": "true", "path": "/x", "content": "", "scope": "account", field: value}
            if route.path.endswith("/exec") and field in ("env", "stdin", "working_dir", "user", "path", "content"):
                sent.pop("cmd")  # nothing shall run
            answer = world.send(route, world.owner.headers, json.dumps(sent))
            assert answer.status_code != 500, (field, value)
            if answer.status_code >= 400:
                assert_error(answer, answer.status_code)


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


def test_what_nobody_expected_is_internal_error_without_a_word_of_it(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workspaces import selectors

    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a secret of ours")

    monkeypatch.setattr(selectors, "listed", broken)
    monkeypatch.setattr(selectors, "get", broken)
    for path in ("/workspace", "/workspace/x", "/workspace/x/overlay/files?path=/x"):
        answer = api.get(path)
        assert_error(answer, 500, "internal_error")
        assert b"secret" not in answer.content
