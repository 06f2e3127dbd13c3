"""What holds for every route: that it is listed, and who may call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core import signing
from django.urls import URLPattern, URLResolver, get_resolver, resolve

from accounts.scopes import Scope, ScopeBinding
from namespaces.models import Namespace
from tests.callers import Caller
from tests.route import BILLING, NAMESPACE, WORKSPACE, Route, braced
from tests.routes import DOCUMENTED, NOT_WALKED, OPEN, ROUTES, every_route
from tests.workspaces.rows import make_workspace
from tests.world import World, assert_error

pytestmark = pytest.mark.django_db


def assert_unauthorized(answer: Any, route: Route) -> None:
    creates = (route.method, route.path) == ("POST", "workspace")
    assert_error(answer, 401, "MISSING_USER_ID" if creates else "unauthorized")


def existing() -> Iterator[tuple[str, str]]:
    """Every method and route of the URL configuration but the open ones and the admin's."""
    for pattern, path in routes_below(get_resolver()):
        if path in OPEN | NOT_WALKED or path.startswith("admin/"):
            continue
        for method in pattern.callback.actions:
            if method.upper() != "HEAD":
                yield method.upper(), path


def routes_below(resolver: URLResolver, before: str = "") -> Iterator[tuple[URLPattern, str]]:
    """Each pattern with its whole path, its placeholders as those of `Route`; none of the admin."""
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes_below(pattern, path) if path != "admin/" else ()
        else:
            yield pattern, braced(path)


def test_every_route_has_its_entry_here() -> None:
    assert sorted(existing()) == sorted((route.method, route.path) for route in ROUTES)


@pytest.mark.parametrize("line", DOCUMENTED)
def test_every_documented_route_that_exists_is_matched(line: str) -> None:
    method, path = line.split()
    match = resolve(re.sub(r":\w+", "ws_aaaaaaaaaaaaaaaa", path))
    assert method.lower() in match.func.actions


@every_route
def test_a_request_without_credentials_is_refused(world: World, route: Route) -> None:
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
    before = world.stored()
    assert_error(world.send(route, stranger.headers), 404, "not_found")
    if "workspace_id" in route.path:
        for identifier in (world.workspace.slug, "ws_never"):
            path = route.at(**world.ids | {"workspace_id": identifier})
            assert_error(stranger.send(route.method, path), 404, "not_found")
    assert world.stored() == before


@every_route
@pytest.mark.parametrize("scope", [NAMESPACE, WORKSPACE, BILLING])
def test_a_credential_of_the_wrong_level_is_forbidden(
    world: World, scoped: Callable[..., Caller], route: Route, scope: Scope
) -> None:
    binding = {
        "namespace_id": world.workspace.namespace_id,
        "namespace_slug": world.workspace.namespace.slug,
        "workspace_id": world.workspace.pk,
    }
    if scope not in route.scopes or not route.tokens:
        minted = world.token(scope=scope, binding=ScopeBinding(**binding))
        assert_error(world.send(route, {"Authorization": f"Bearer {minted}"}), 403, "forbidden")
    answer = world.send(route, scoped(world.owner, scope, **binding).headers)
    if scope in route.scopes:
        assert answer.status_code not in (401, 403)
    else:
        assert_error(answer, 403, "forbidden")


BOUND = [route for route in ROUTES if route.is_addressed and route.scopes & {NAMESPACE, WORKSPACE}]


@pytest.mark.parametrize("route", BOUND, ids=str)
def test_objects_outside_of_a_scope_binding_do_not_exist(
    world: World, scoped: Callable[..., Caller], route: Route
) -> None:
    elsewhere = Namespace.objects.create(account=world.owner.account, name="Other", slug="other")
    beside = make_workspace(world.owner.account, namespace=elsewhere)
    bindings = {
        NAMESPACE: {"namespace_id": elsewhere.pk, "namespace_slug": "other"},
        WORKSPACE: {"namespace_id": elsewhere.pk, "workspace_id": beside.pk},
    }
    for scope in bindings.keys() & route.scopes:
        caller = scoped(world.owner, scope, **bindings[scope])
        for identifier in (world.workspace.pk, world.workspace.slug):
            path = route.at(**world.ids | {"workspace_id": identifier})
            assert_error(caller.send(route.method, path), 404, "not_found")


@every_route
def test_a_token_is_taken_only_where_one_is_enough(world: World, route: Route) -> None:
    answer = world.send(route, {"Authorization": f"bearer {world.token()}"})
    if route.tokens:
        assert answer.status_code not in (401, 403)
    else:
        assert_error(answer, 403, "forbidden")
