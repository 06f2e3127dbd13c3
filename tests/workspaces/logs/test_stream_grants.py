"""Who may read an event stream, and for how long: as long as what let the client in is good."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from django.test import AsyncClient
from django.test import Client as HttpClient

from accounts import tokens
from accounts.actors import Actor
from accounts.models import Account, Credential
from accounts.scopes import Scope, ScopeBinding
from common.sse import runtime
from tests.callers import Caller
from tests.common.sse.reading import Client
from tests.fakehost import FakeHost
from tests.workspaces.logs.streaming import BOOT, BOX, CMD, STATS, WEB, WORKLOADS, call, opened, run
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import bring
from workspaces import grants
from workspaces.states import Status
from workspaces.streams.sources import stats_channel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]


def actor(api: Caller) -> Actor:
    credential = Credential.objects.get(client_id=api.client_id)
    return Actor(api.account, Scope.ACCOUNT, credential.pk, "t")


async def ended(client: Client) -> str:
    """The last words of a stream, which has ended."""
    last = ""
    while (frame := await client.frame(10)) is not None:
        last = frame.text
    return last


@pytest.mark.parametrize("how", ["rotated", "deleted", "account", "rescoped"])
def test_open_streams_end_with_their_credential(
    api: Caller, scoped: Callable[..., Caller], made: str, how: str
) -> None:
    other = scoped(api, Scope.ACCOUNT)
    credential = Credential.objects.get(client_id=other.client_id)

    def revoke() -> None:
        if how == "rotated":
            assert api.post(f"/credentials/{credential.pk}/rotate").status_code == 200
        elif how == "deleted":
            assert api.delete(f"/credentials/{credential.pk}").status_code == 200
        elif how == "account":
            Account.objects.filter(pk=api.account.pk).update(is_active=False)
        else:
            Credential.objects.filter(pk=credential.pk).update(scope=Scope.BILLING)

    async def work() -> None:
        async with (
            opened(other, STATS) as stats,
            opened(other, BOOT) as boot,
            opened(other, WORKLOADS) as workloads,
            opened(api, STATS) as own,
        ):
            await stats.take(1)
            await call(revoke)
            for client in (stats, boot, workloads):
                assert await ended(client) == ": the credential is not valid any more"
            if how != "account":
                assert (await own.next()).kind == "message"

    run(work)


def test_a_stream_ends_with_its_token(api: Caller, made: str) -> None:
    minted = tokens.mint_token(actor=actor(api), scope=Scope.ACCOUNT, binding=ScopeBinding(), ttl=3, label="")
    caller = Caller(HttpClient(), api.account, "", "")

    async def work() -> None:
        sent = {"Authorization": f"Bearer {minted.token}"}
        async with opened(Bearer(caller, sent), STATS) as client:
            assert await ended(client) == ": the access token has expired"
            assert time.time() >= minted.expires_at.timestamp()

    run(work)


def test_tokens_end_with_the_credential_that_made_them(api: Caller, scoped: Callable[..., Caller], made: str) -> None:
    other = scoped(api, Scope.ACCOUNT)
    minter = actor(other)
    minted = tokens.mint_token(actor=minter, scope=Scope.ACCOUNT, binding=ScopeBinding(), ttl=900, label="")

    async def work() -> None:
        async with opened(Bearer(other, {"Authorization": f"Bearer {minted.token}"}), STATS) as client:
            await client.take(1)
            await call(api.post, f"/credentials/{minter.credential_id}/rotate")
            assert await ended(client) == ": the credential is not valid any more"

    run(work)


class Bearer(Caller):
    """Sends an access token alone."""

    def __init__(self, caller: Caller, headers: dict[str, str]) -> None:
        super().__init__(caller.client, caller.account, caller.client_id, caller.secret)
        self._headers = headers

    @property
    def headers(self) -> dict[str, str]:
        return self._headers


def test_streams_end_with_their_workspace(api: Caller, made: str) -> None:
    async def work() -> None:
        async with (
            opened(api, STATS) as stats,
            opened(api, BOOT) as boot,
            opened(api, CMD) as cmd,
            opened(api, WORKLOADS) as workloads,
            opened(api, WEB) as web,
        ):
            await stats.take(1)
            assert (await call(api.delete, BOX)).status_code == 200
            for client in (stats, boot, cmd, workloads, web):
                assert await ended(client) == ": the workspace does not exist any more"

    run(work)


def test_what_is_wrong_before_a_stream_begins_is_an_ordinary_error(
    api: Caller, vmhost: FakeHost, stranger: Caller, made: str
) -> None:
    for path in (STATS, BOOT, CMD, WORKLOADS, WEB):
        assert stranger.get(path).json()["code"] == "not_found"
        answer = HttpClient().get(path)
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
        assert api.post(path).status_code == 405
    for query in ("tail_lines=-1", "tail_lines=x", "tail_lines=10001"):
        answer = api.get(f"{BOOT}?{query}")
        assert (answer.status_code, list(answer.json()["details"])) == (400, ["tail_lines"])
    bring(api, vmhost, made, Status.STOPPED)
    for path in (CMD, WEB):
        answer = api.get(path)
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")


@pytest.mark.parametrize("limit", ["streams_max", "streams_per_account"])
def test_a_process_and_an_account_have_so_many_streams_and_no_more(
    api: Caller, stranger: Caller, made: str, settings: Any, limit: str
) -> None:
    settings.ENV = settings.ENV.model_copy(update={limit: 2})
    theirs = f"/workspace/{make_workspace(stranger.account).pk}/stats/stream"

    async def refused(caller: Caller, path: str) -> bool:
        answer: Any = await AsyncClient().get(path, headers=caller.headers)
        if answer.status_code == 200:
            return False
        assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
        assert answer["Retry-After"]
        return True

    async def work() -> None:
        async with opened(api, STATS) as client, opened(api, BOOT):
            assert await refused(api, STATS)
            assert await refused(stranger, theirs) is (limit == "streams_max")
            await client.take(1)
        assert not await refused(api, STATS)

    run(work)


def test_an_account_leaves_half_of_the_windows_to_others(
    api: Caller, stranger: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "REPLAY_BYTES", 2 * stats_channel("").max_bytes)
    other = f"/workspace/{make_workspace(api.account).pk}/stats/stream"
    theirs = f"/workspace/{make_workspace(stranger.account).pk}/stats/stream"

    async def work() -> None:
        async with opened(api, STATS), opened(api, STATS), opened(stranger, theirs):
            answer: Any = await AsyncClient().get(other, headers=api.headers)
            assert answer.status_code == 429

    run(work)


def test_while_the_database_is_away_only_time_ends_a_stream(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(grants: Any) -> Any:
        raise OperationalError("the database is away")

    minted = tokens.mint_token(actor=actor(api), scope=Scope.ACCOUNT, binding=ScopeBinding(), ttl=3, label="")
    bearer = Bearer(api, {"Authorization": f"Bearer {minted.token}"})

    async def work() -> None:
        async with opened(bearer, STATS) as short, opened(api, STATS) as long:
            monkeypatch.setattr(grants, "_credentials", away)
            assert await ended(short) == ": the access token has expired"
            assert (await long.next()).kind == "message"

    run(work)
