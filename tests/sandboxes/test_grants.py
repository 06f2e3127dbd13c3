"""What is open by a token ends when the token does: replaced, deleted, suspended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError

from accounts.services import account_switch
from common.sse import watched_grants
from namespaces.models import Namespace
from sandboxes import grants, services
from sandboxes.tokens import SocketHolder, TokenHolder, require_holder
from tests.callers import Caller
from tests.sandboxes.rows import make_sandbox
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def holders(api: Caller) -> list[TokenHolder]:
    """Of two sandboxes."""
    made = [make_sandbox(api.account, host=None) for _ in range(2)]
    return [require_holder(sandbox.pk, token) for sandbox, token in made]


def socket_of(holder: TokenHolder) -> SocketHolder:
    return SocketHolder(holder.workspace, holder.sandbox.token_hash)


def replace(holder: TokenHolder) -> None:
    services.token_regenerate(workspace=holder.sandbox.workspace, actor="owner")


def delete(holder: TokenHolder) -> None:
    services.sandbox_delete(workspace=Workspace.objects.get(pk=holder.workspace.pk), actor="owner")


def begin_delete(holder: TokenHolder) -> None:
    Workspace.objects.filter(pk=holder.workspace.pk).update(status="deleting", ready=False)


def move_to_suspended(holder: TokenHolder) -> None:
    team = Namespace.objects.create(
        account_id=holder.account_id, name="Team", slug="team", status="suspended", suspended_by_hand=True
    )
    Workspace.objects.filter(pk=holder.workspace.pk).update(namespace=team)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (replace, grants.REPLACED),
        (delete, grants.DELETED),
        (begin_delete, grants.DELETED),
        (move_to_suspended, grants.SUSPENDED),
    ],
)
def test_sockets_of_a_token_end_with_it_and_others_stay(
    holders: list[TokenHolder], end: Callable[[TokenHolder], None], reason: str
) -> None:
    ended: list[tuple[int, str]] = []

    async def run() -> None:
        done = asyncio.Event()

        def end_first(said: str) -> None:
            ended.append((0, said))
            done.set()

        async with (
            grants.watched_token(socket_of(holders[0]), end_first),
            grants.watched_token(socket_of(holders[1]), lambda said: ended.append((1, said))),
        ):
            await asyncio.to_thread(_in_thread, end, holders[0])
            await asyncio.wait_for(done.wait(), 30)

    asyncio.run(run())
    assert set(ended) == {(0, reason)}


def _in_thread(work: Callable[[TokenHolder], None], holder: TokenHolder) -> None:
    from django.db import connections

    try:
        work(holder)
    finally:
        connections.close_all()


def test_sockets_of_an_inactive_account_end(api: Caller, holders: list[TokenHolder]) -> None:
    of_both = [grants.SocketGrant(holder.workspace.pk, holder.sandbox.token_hash) for holder in holders]
    assert grants.revoked_grants(of_both) == {}
    account_switch(api.account, is_active=False)
    assert set(grants.revoked_grants(of_both).values()) == {grants.INACTIVE}


def test_a_quota_that_only_blocks_ends_no_socket(api: Caller, holders: list[TokenHolder]) -> None:
    grant = grants.SocketGrant(holders[0].workspace.pk, holders[0].sandbox.token_hash)
    Namespace.objects.update(status="suspended", suspended_by_quota=True)
    assert grants.revoked_grants([grant]) == {}
    Namespace.objects.update(quota_stops_workspaces=True)
    assert grants.revoked_grants([grant]) == {grant: grants.SUSPENDED}


def test_all_sockets_are_checked_by_one_query(
    api: Caller, holders: list[TokenHolder], django_assert_num_queries: Any
) -> None:
    of_both = [grants.SocketGrant(holder.workspace.pk, holder.sandbox.token_hash) for holder in holders] * 50
    with django_assert_num_queries(1):
        grants.revoked_grants(of_both)


def test_while_the_database_is_away_sockets_stay_open(holders: list[TokenHolder], monkeypatch: Any) -> None:
    def away(*_: Any) -> Any:
        raise DatabaseError("away")

    monkeypatch.setattr(grants, "batches", away)
    assert grants.revoked_grants([grants.SocketGrant(holders[0].workspace.pk, "other")]) == {}


def test_a_check_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_grants, "CHECK_SECONDS", 0.01)
    checks: list[int] = []

    def check(found: Any) -> dict[Any, str]:
        checks.append(len(found))
        if len(checks) == 1:
            raise RuntimeError("away")
        return dict.fromkeys(found, "over")

    async def run() -> str:
        said: asyncio.Queue[str] = asyncio.Queue()
        async with watched_grants.watched_grant("a", check, said.put_nowait):
            return await asyncio.wait_for(said.get(), 30)

    assert asyncio.run(run()) == "over"
    assert checks[:2] == [1, 1]


def test_nothing_is_left_when_the_last_socket_is_over() -> None:
    async def run() -> None:
        before = asyncio.all_tasks()
        async with watched_grants.watched_grant("a", lambda _: {}, print):
            assert len(asyncio.all_tasks()) == len(before) + 1
        assert asyncio.all_tasks() == before

    asyncio.run(run())
