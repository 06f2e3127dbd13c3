"""Many long commands at once: what they hold of the process, and what else it still serves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import RateLimited
from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.fakehost import FakeHost
from workspaces.commands import requested
from workspaces.commands.capacity import command_capacity, command_place

pytestmark = pytest.mark.django_db(transaction=True)
BOX = "/workspace/the-box"
LIMIT = 3


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace."""
    return api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]


@pytest.fixture
def limited(settings: Any) -> Iterator[None]:
    """An account may run LIMIT commands at once."""
    settings.ENV = settings.ENV.model_copy(update={"commands_per_account": LIMIT})
    command_capacity.cache_clear()
    yield
    command_capacity.cache_clear()


def command(api: Caller, cmd: str, box: str = BOX) -> Request:
    return Request(f"{box}/exec", api.headers, "POST", {"cmd": cmd})


async def served(request: Request, seconds: float = 120) -> Request:
    await asyncio.wait_for(request.run(), seconds)
    return request


def threads() -> int:
    """Without those with which the fake driver waits for each of its processes."""
    return sum(not thread.name.startswith("waitpid") for thread in threading.enumerate())


async def running(requests: list[Request]) -> list[asyncio.Task[None]]:
    """Serve these; returns once their commands run."""
    tasks = [asyncio.ensure_future(request.run()) for request in requests]
    await until(lambda: command_capacity().used == len(requests), 20)
    return tasks


def test_a_running_command_holds_no_thread(api: Caller, made: str) -> None:
    async def work() -> None:
        # As many at once as later, so that the bounded pools which all requests share have their threads.
        await asyncio.gather(*(served(command(api, "true"), 30) for _ in range(30)))
        before = threads()
        requests = [command(api, "sleep 4; echo done") for _ in range(30)]
        tasks = await running(requests)
        await asyncio.sleep(1)  # the threads end by themselves
        assert threads() - before <= 10
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert [request.json()["stdout"] for request in requests] == ["done\n"] * len(requests)

    asyncio.run(work())


@pytest.mark.usefixtures("limited")
def test_an_accounts_commands_leave_everything_else_untouched(api: Caller, stranger: Caller, made: str) -> None:
    assert stranger.post("/workspace", {"slug": "other-box"}).status_code == 201

    async def work() -> None:
        tasks = await running([command(api, "sleep 6") for _ in range(LIMIT)])
        refused = await served(command(api, "true"), 3)
        assert (refused.status, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["Retry-After"]) > 0
        for path in ("", "/overlay", "/overlay/usage", "/logs", "/logs/list"):
            assert (await served(Request(BOX + path, api.headers), 3)).status == 200
        theirs = await served(command(stranger, "echo here", "/workspace/other-box"), 3)
        assert theirs.json()["stdout"] == "here\n"
        stream = Request(f"{BOX}/stats/stream", api.headers)
        reading = asyncio.ensure_future(stream.run())
        await until(lambda: stream.body.count(b"event: message") >= 2, 6)
        assert not any(task.done() for task in tasks)
        stream.leave()
        await asyncio.wait_for(asyncio.gather(reading, *tasks), 20)
        assert (await served(command(api, "true"))).status == 200

    asyncio.run(work())


@pytest.mark.usefixtures("limited")
def test_a_command_goes_on_and_keeps_its_place_when_its_client_disconnects(api: Caller, made: str) -> None:
    async def work() -> None:
        request = command(api, "sleep 2; echo done > /tmp/marker-$$; mv /tmp/marker-$$ marker")
        (task,) = await running([request])
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 1)
        assert command_capacity().used == 1
        await until(lambda: command_capacity().used == 0, 10)
        assert (await served(command(api, "cat marker"))).json()["stdout"] == "done\n"

    asyncio.run(work())


def test_a_command_that_fails_gives_its_place_back(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.pause(made)
    assert api.post(f"{BOX}/exec", {"cmd": "true"}).status_code == 503
    assert command_capacity().used == 0


def test_a_command_that_waits_for_its_guest_ends_with_its_deadline(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested, "EXEC_SLACK_SECONDS", -0.5)
    began = time.monotonic()
    answer = api.post(f"{BOX}/exec", {"cmd": "sleep 5", "timeout_seconds": 1})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert time.monotonic() - began < 4


def test_a_command_beyond_the_total_is_refused_as_the_platforms(settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"commands_max": 1})
    command_capacity.cache_clear()
    with command_place("a"), pytest.raises(RateLimited, match="Too many commands run"), command_place("b"):
        pass
    command_capacity.cache_clear()
