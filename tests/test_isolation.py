"""What another account has cannot be distinguished from what does not exist: equal answers, headers, database work.

The route walk (tests/test_routes.py) shows that a foreign thing is 404. Here the answer is compared with that for an
identifier of the same form that nothing has. Time is compared by its cause: as many queries, of the same texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.scopes import Scope
from namespaces.models import Namespace
from sandboxes.level.urls import urlpatterns as level_urls
from tests.callers import Caller
from tests.route import Route
from tests.routes import ROUTES
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_workspace
from tests.world import World

pytestmark = pytest.mark.django_db

ADDRESSED = [route for route in ROUTES if route.is_addressed]
FIRST = sorted({route.path.partition("/")[0] for route in ADDRESSED})
SLUGS = {"workspace_id": "slug", "namespace_id": "slug", "namespace": "slug"}
# Of each request, whatever is asked for.
OWN_HEADERS = {"X-Request-ID", "Date"}
BODIES = ["", "{}", '{"name": "x", "paths": ["/x"], "domain": "a.example.org"}', "[1"]

Seen = tuple[int, dict[str, str], str, list[str]]


def absent_like(identifier: str) -> str:
    """An identifier of the same form and length that no row has."""
    if identifier.isdigit():
        return str(int(identifier) + 10**9)
    head, sign, tail = identifier.rpartition("_")
    return f"{head}{sign}{_turned(tail)}"


def _turned(text: str) -> str:
    """Each letter and digit by another one; what is no hexadecimal digit stays none."""
    return text.translate(str.maketrans("0123456789abcdefghijklmnopqrstuvwxyz", "1234567890bcdefahijklmnopqrstuvwxyzg"))


def asked(caller: Caller | TokenHolder, method: str, path: str, body: Any, identifier: str) -> Seen:
    """What the caller sees, without what names the request or the thing."""
    with CaptureQueriesContext(connection) as queries:
        answer = caller.send(method, path, body)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    headers = {name: value for name, value in answer.items() if name not in OWN_HEADERS}
    if 0 < int(headers.get("Retry-After", 0)) <= 60:
        headers["Retry-After"] = "1 to 60"  # of a window of the caller's own, which goes on
    text = content.decode().replace(answer.get("X-Request-ID", "-"), "REQUEST")
    text = re.sub(rf"\b{re.escape(identifier)}\b", "ID", text)
    return answer.status_code, headers, text, [_without_values(query["sql"]) for query in queries]


def _without_values(sql: str) -> str:
    return re.sub(r"'[^']*'|\b\d+\b|_x\d+", "?", sql)


def identifiers(world: World, name: str) -> list[str]:
    found = [world.ids[name]]
    if name in SLUGS:
        found.append(str(getattr(world.rows[name], SLUGS[name])))
    return found


@pytest.fixture
def theirs(world: World) -> World:
    """The things of the other account; its namespace has a slug that the caller's account has not."""
    Namespace.objects.filter(account=world.owner.account).update(slug="only-theirs")
    for row in world.rows.values():
        row.refresh_from_db()
    return world


@pytest.fixture
def outsider(stranger: Caller) -> Caller:
    """The caller of the other account; that its credential was used is noted already."""
    assert stranger.get("/workspace").status_code == 200
    return stranger


@pytest.fixture(params=[Scope.NAMESPACE, Scope.WORKSPACE])
def bound(request: pytest.FixtureRequest, theirs: World, scoped: Callable[..., Caller]) -> Caller:
    """A caller of the same account, bound to another namespace of it, or to a workspace there."""
    account = theirs.owner.account
    elsewhere = Namespace.objects.create(account=account, name="Other", slug="other")
    binding = {"namespace_id": elsewhere.pk, "namespace_slug": "other"}
    if request.param == Scope.WORKSPACE:
        binding["workspace_id"] = make_workspace(account, namespace=elsewhere).pk
    caller = scoped(theirs.owner, request.param, **binding)
    assert caller.get("/workspace").status_code == 200
    return caller


@pytest.mark.parametrize("first", FIRST)
def test_an_address_of_another_account_is_as_one_of_nothing(theirs: World, outsider: Caller, first: str) -> None:
    assert_as_nothing(theirs, outsider, first, BODIES)


@pytest.mark.parametrize("first", FIRST)
def test_an_address_outside_of_a_binding_is_as_one_of_nothing(theirs: World, bound: Caller, first: str) -> None:
    assert_as_nothing(theirs, bound, first, BODIES[2:3])


def assert_as_nothing(theirs: World, caller: Caller, first: str, bodies: list[str]) -> None:
    """What the world has below `/first` is answered to the caller as what no account has."""
    for route in (route for route in ADDRESSED if route.path.startswith(f"{first}/")):
        for name, identifier in addressed_things(theirs, route):
            for body in bodies if route.reads else [""]:
                foreign, absent = (
                    asked(caller, route.method, route.at(**theirs.ids | {name: one}), body, one)
                    for one in (identifier, absent_like(identifier))
                )
                assert foreign == absent, (route, identifier, body)
                assert 400 <= foreign[0] < 500, (route, foreign)


def addressed_things(world: World, route: Route) -> Iterator[tuple[str, str]]:
    """Placeholders of the path, each with the identifiers that it takes."""
    for name in re.findall(r"{(\w+)}", route.path):
        if name in world.rows:
            yield from ((name, identifier) for identifier in identifiers(world, name))


# Where a body or a query names a thing: request, the row, and the body.
REFERENCES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST /sandbox", "namespace", {"namespace": "ID"}),
    ("GET /sandbox?namespace=ID", "namespace", {}),
    ("POST /workspace", "namespace", {"namespace": "ID"}),
    ("GET /workspace?namespace=ID", "namespace", {}),
    ("POST /tokens", "namespace", {"scope": "namespace", "namespace": "ID"}),
    ("POST /tokens", "workspace_id", {"scope": "workspace", "workspaceId": "ID"}),
    ("POST /credentials", "namespace", {"scope": "namespace", "namespace": "ID"}),
    ("POST /credentials", "workspace_id", {"scope": "workspace", "workspace_id": "ID"}),
    ("POST /api-keys", "namespace", {"name": "x", "namespace": "ID"}),
    ("POST /cdn/token", "namespace", {"filename": "x", "size": 1, "namespace": "ID"}),
    ("GET /cdn/files?namespace=ID", "namespace", {}),
    ("DELETE /cdn/trash?namespace=ID", "namespace", {}),
    ("PUT /cdn/namespaces/quota", "namespace", {"namespace": "ID", "policy": None}),
    ("GET /cdn/policy?namespace=ID", "namespace", {}),
    ("GET /cdn/usage?namespace=ID", "namespace", {}),
    ("POST /credits/namespace-quota", "namespace", {"namespace": "ID", "quotas": {"sandbox": 1}}),
    ("POST /credits/reset-quota", "namespace", {"namespace": "ID", "service": "sandbox"}),
    ("GET /notifications/tokens?workspace_id=ID", "workspace_id", {}),
    ("POST /notifications/tokens", "workspace_id", {"name": "x", "workspace_id": "ID"}),
    ("POST /pages", "workspace_id", {"slug": "a-new-page", "workspace_id": "ID"}),
    ("POST /webhooks", "namespace", {"url": "https://example.org/x", "events": ["*"], "namespace": "ID"}),
]


@pytest.mark.parametrize("line", REFERENCES, ids=lambda line: f"{line[0]} {line[1]}")
def test_a_reference_to_another_accounts_thing_is_as_one_to_nothing(
    theirs: World, outsider: Caller, line: tuple[str, str, dict[str, Any]]
) -> None:
    accepted = (200, 400, 404) if line[0].startswith("GET ") else (400, 404)
    for foreign in foreign_answers(theirs, outsider, line):
        assert foreign[0] in accepted, foreign


@pytest.mark.parametrize("line", REFERENCES, ids=lambda line: f"{line[0]} {line[1]}")
def test_a_reference_outside_of_a_binding_is_as_one_to_nothing(
    theirs: World, bound: Caller, line: tuple[str, str, dict[str, Any]]
) -> None:
    assert foreign_answers(theirs, bound, line)


def foreign_answers(theirs: World, caller: Caller, line: tuple[str, str, dict[str, Any]]) -> list[Any]:
    """What the caller is answered for each identifier of a thing; fails where it differs from that for nothing."""
    request, name, body = line
    method, path = request.split()
    answers = []
    for identifier in identifiers(theirs, name):
        foreign, absent = (
            asked(caller, method, path.replace("ID", one), with_identifier(body, one), one)
            for one in (identifier, absent_like(identifier))
        )
        assert foreign == absent, identifier
        answers.append(foreign)
    return answers


def with_identifier(body: dict[str, Any], identifier: str) -> dict[str, Any] | None:
    return {name: identifier if value == "ID" else value for name, value in body.items()} or None


def test_a_token_of_another_sandbox_is_as_one_for_nothing(theirs: World, stranger: Caller) -> None:
    own, token = make_sandbox(stranger.account, slug="own-sandbox", status="stopped")
    holder, sandbox = TokenHolder(stranger.client, token), theirs.ids["sandbox_id"]
    assert holder.send("POST", f"/s/{own.pk}/files/list", {}).status_code not in (401, 403, 404)
    for pattern in level_urls:
        foreign, absent = (
            asked(holder, "POST", f"/s/{one}/{pattern.pattern}", {"path": "/x", "command": "true"}, one)
            for one in (sandbox, absent_like(sandbox))
        )
        assert foreign == absent, pattern
        assert foreign[0] in (401, 403, 404, 405)


@dataclass
class TokenHolder:
    client: Client
    token: str

    def send(self, method: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.client.generic(method, path, json.dumps(body), content_type="application/json", headers=headers)
