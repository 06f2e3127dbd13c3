"""Limits that many requests meet at once, on both databases."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import DomainError
from common.request_origin import NO_ORIGIN
from namespaces import services
from namespaces.errors import NamespaceLimitExceeded
from namespaces.models import Namespace
from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.crud.services import NewWorkspace, workspace_create
from workspaces.errors import NamespaceLimitReached
from workspaces.models import Operation, Workspace

pytestmark = pytest.mark.django_db(transaction=True)

SIZES = {"cpu_millis": 100, "memory_mb": 128, "disk_size_mb": 64}


def test_of_100_creates_at_once_exactly_as_many_succeed_as_the_namespace_allows(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    Namespace.objects.create(account=api.account, name="Team", slug="team", resource_limits={"max_workspaces": 10})
    actor = Actor(api.account, Scope.ACCOUNT, "cred", "label")

    def create(_: int) -> str:
        try:
            workspace_create(actor=actor, new=NewWorkspace(namespace="team", sizes=SIZES))
        except DomainError as exc:
            return type(exc).__name__
        finally:
            connection.close()
        return "created"

    with ThreadPoolExecutor(20) as pool:
        outcomes = Counter(pool.map(create, range(100)))
    assert outcomes == {"created": 10, NamespaceLimitReached.__name__: 90}
    assert (Workspace.objects.count(), Operation.objects.count()) == (10, 10), "a refused create holds nothing"
    api.account.refresh_from_db()
    assert api.account.workspace_count == 10
    Workspace.objects.all().delete()


def test_of_many_namespaces_at_once_an_account_gets_100(api: Caller) -> None:
    Namespace.objects.bulk_create(Namespace(account=api.account, name=str(n), slug=f"n-{n}") for n in range(94))

    def create(number: int) -> str:
        new = services.NewNamespace(name=f"Team {number}", is_default=True)
        try:
            services.namespace_create(account=api.account, new=new, actor="a", origin=NO_ORIGIN)
        except DomainError as exc:
            return type(exc).__name__
        finally:
            connection.close()
        return "created"

    with ThreadPoolExecutor(10) as pool:
        outcomes = Counter(pool.map(create, range(20)))
    assert outcomes == {"created": 5, NamespaceLimitExceeded.__name__: 15}
    assert Namespace.objects.filter(account=api.account, is_default=True).count() == 1


def test_of_many_that_ensure_one_namespace_one_makes_it(api: Caller) -> None:
    def ensure(_: int) -> tuple[str, bool]:
        try:
            found, made = services.namespace_ensure(
                account=api.account, new=services.NewNamespace(slug="team"), actor="a", origin=NO_ORIGIN
            )
        finally:
            connection.close()
        return found.pk, made

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ensure, range(30)))
    assert len({key for key, _ in answers}) == 1
    assert sum(made for _, made in answers) == 1
