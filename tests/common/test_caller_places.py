"""Of one caller's requests some are carried out at a time, whatever it sends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory

from accounts.authentication import actor_of
from accounts.scopes import Scope, ScopeBinding
from accounts.services import credential_issue
from common.async_threads import in_pool_thread, in_request_thread
from common.caller_places import PLACES, ThreadPlaces, remember_account, thread_place, thread_places
from common.connections import release_connection
from common.errors import RateLimited
from common.middleware import ApiMiddleware
from tests.callers import Caller
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)


class View:
    """Counts the requests that it handles until `go_on`. With `in_thread` their synchronous part is over by then."""

    def __init__(self, *, in_thread: bool = False) -> None:
        self.here = 0
        self.go_on = asyncio.Event()
        self._in_thread = in_thread

    async def respond(self, request: HttpRequest) -> HttpResponse:
        await in_pool_thread(actor_of, request)
        if self._in_thread:
            await in_request_thread(lambda: None)
        self.here += 1
        await self.go_on.wait()
        self.here -= 1
        return HttpResponse()


async def handled_at_once(expected: int, *callers: dict[str, str], each: int, view: View | None = None) -> bool:
    """Whether so many of `each` requests of each caller are handled at once, and no more; all are in the end."""
    view = view or View()
    middleware: Any = ApiMiddleware(view.respond)
    factory = AsyncRequestFactory()
    requests = [factory.get("/", headers=headers) for headers in callers for _ in range(each)]
    tasks = [asyncio.ensure_future(middleware(request)) for request in requests]
    async with asyncio.timeout(60):
        while view.here < expected:
            assert not [task.result() for task in tasks if task.done()]  # one that was refused
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # one more would be there by now
        seen = view.here
        view.go_on.set()
        assert {response.status_code for response in await asyncio.gather(*tasks)} == {200}
    return seen == expected


def test_a_caller_has_so_many_places_and_leaves_those_of_others(api: Caller, stranger: Caller) -> None:
    async def work() -> None:
        for headers in (api.headers, stranger.headers):  # each is known by its account once its secret was right
            assert await handled_at_once(1, headers, each=1)
        assert await handled_at_once(PLACES, api.headers, each=3 * PLACES)
        assert await handled_at_once(2 * PLACES, api.headers, stranger.headers, each=3 * PLACES)

    asyncio.run(work())


def test_all_credentials_of_an_account_share_its_places(api: Caller) -> None:
    made = credential_issue(account=api.account, name="second", scope=Scope.ACCOUNT, binding=ScopeBinding())
    second = {"X-Client-ID": made.credential.client_id, "X-Client-Secret": made.secret}

    async def work() -> None:
        for headers in (api.headers, second):
            assert await handled_at_once(1, headers, each=1)
        assert await handled_at_once(PLACES, api.headers, second, each=2 * PLACES)

    asyncio.run(work())


def test_who_knows_only_the_client_id_takes_no_place_of_its_owner(api: Caller) -> None:
    async def work() -> None:
        guess = {**api.headers, "X-Client-Secret": "guess"}
        assert await handled_at_once(2 * PLACES, guess, api.headers, each=2 * PLACES)

    asyncio.run(work())


def test_in_the_api_a_caller_has_a_share_of_the_threads(api: Caller, stranger: Caller) -> None:
    share, places, go_on = PLACES + 4, ThreadPlaces(PLACES + 4), threading.Event()
    running = threading.Semaphore(0)

    def handle(caller: str) -> str:
        try:
            with places.place(caller):
                running.release()
                go_on.wait(20)
                return caller
        except RateLimited:
            return "refused"

    def begun(number: int) -> list[bool]:
        return [running.acquire(timeout=20) for _ in range(number)]

    with ThreadPoolExecutor(2 * share) as pool:
        own = [pool.submit(handle, "one") for _ in range(share)]
        assert all(begun(PLACES))
        assert not running.acquire(timeout=0.3)
        assert [pool.submit(handle, "one").result(120) for _ in range(3)] == ["refused"] * 3
        other = pool.submit(handle, "another")
        assert all(begun(1))
        go_on.set()
        assert [one.result(120) for one in (*own, other)] == ["one"] * share + ["another"]
        assert pool.submit(handle, "one").result(120) == "one"


def test_in_the_api_a_request_that_waits_for_something_else_gives_its_place_to_the_next(db: None) -> None:
    places, waiting, go_on = ThreadPlaces(3 * PLACES), threading.Semaphore(0), threading.Event()

    def handle() -> None:
        with places.place("one"):
            release_connection()
            waiting.release()
            go_on.wait(20)

    with ThreadPoolExecutor(3 * PLACES) as pool:
        own = [pool.submit(handle) for _ in range(3 * PLACES)]
        assert all(waiting.acquire(timeout=20) for _ in own)
        go_on.set()
        assert [one.result(120) for one in own] == [None] * len(own)
        assert pool.submit(handle).result(120) is None


def test_in_the_api_too_many_requests_of_a_caller_are_429(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    thread_places.cache_clear()
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"api_threads": 2}))
    try:
        caller = RequestFactory().get("/", headers=api.headers)
        with thread_place(caller):
            answer = Client().get("/workspace", headers=api.headers)
            assert_error(answer, 429, "rate_limited")
            assert answer["Retry-After"] == "1"
            assert Client().get("/healthz").status_code == 200
        assert api.get("/workspace").status_code == 200
    finally:
        thread_places.cache_clear()


def test_a_request_whose_synchronous_part_is_over_holds_no_place(api: Caller) -> None:
    async def work() -> None:
        assert await handled_at_once(3 * PLACES, api.headers, each=3 * PLACES, view=View(in_thread=True))

    asyncio.run(work())


def test_requests_without_credentials_need_none(api: Caller) -> None:
    # One of them was authorized by a signed address, say; the others are not that account's.
    remember_account(RequestFactory().get("/"), api.account.pk)

    async def work() -> None:
        assert await handled_at_once(2 * PLACES, {}, each=2 * PLACES)

    asyncio.run(work())
