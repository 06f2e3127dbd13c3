"""Charges that suspend namespaces beside changes of the same namespaces: no two wait for each other in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from decimal import Decimal

import pytest
from django.db import connection, transaction

from accounts.services import account_lock
from credits import ledger
from credits.entries import Purpose
from credits.models import QuotaDefault, Service
from namespaces import services
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Workspace

pytestmark = [
    pytest.mark.django_db(transaction=True),
]

WAIT = 20


def at_once(*works: Callable[[threading.Barrier], None]) -> None:
    """Run each in a transaction of its own; all have come to the barrier before one goes on. Raises what they raise."""
    barrier = threading.Barrier(len(works), timeout=WAIT)

    def run(work: Callable[[threading.Barrier], None]) -> None:
        block: AbstractContextManager[None] = transaction.atomic()
        try:
            with block:
                work(barrier)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(run, work) for work in works]:
            done.result(WAIT)


def use_up(namespace: Namespace) -> None:
    """Suspends it."""
    ledger.credits_charge(namespace=namespace, service=Service.SANDBOX, amount=Decimal(1), purpose=Purpose())


@pytest.fixture
def team(api: Caller) -> Namespace:
    """Every namespace of the account is suspended by its first charge."""
    QuotaDefault.objects.create(account_id=api.account.pk, service=Service.SANDBOX, quota_limit=Decimal(0))
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def test_a_charge_suspends_a_namespace_in_which_a_workspace_is_being_created(api: Caller, team: Namespace) -> None:
    def charge(barrier: threading.Barrier) -> None:
        use_up(team)
        barrier.wait()

    def create(barrier: threading.Barrier) -> None:
        account_lock(api.account)
        barrier.wait()
        services.namespace_used(team)

    at_once(charge, create)
    team.refresh_from_db()
    assert (team.status, team.last_active_at is not None) == ("suspended", True)


def test_a_charge_suspends_two_namespaces_of_which_one_is_moved_into_the_other(api: Caller, team: Namespace) -> None:
    default = Namespace.objects.get(account=api.account, is_default=True)
    row = make_workspace(api.account, namespace=team)

    def charge(barrier: threading.Barrier) -> None:
        use_up(default)
        barrier.wait()
        use_up(team)

    def delete(barrier: threading.Barrier) -> None:
        services.namespace_delete(namespace=team, actor="a")
        barrier.wait()

    at_once(charge, delete)
    default.refresh_from_db()
    assert default.status == "suspended"
    assert Workspace.objects.get(pk=row.pk).namespace_id == default.pk
    assert not Namespace.objects.filter(pk=team.pk).exists()
