"""Event streams and public ports of a workspace whose host cannot be reached."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.callers import Caller
from tests.workspaces.away.conftest import CutOff
from tests.workspaces.network.edge_requests import ask
from workspaces.models import PublicPort, Workspace
from workspaces.streams.host_notices import host_notices

pytestmark = pytest.mark.django_db(transaction=True)


def test_open_streams_say_that_the_host_is_away_and_back(cut_off: CutOff, made: str) -> None:
    """Each change once; a client that comes meanwhile is told at once."""

    async def scene() -> tuple[list[bytes], list[bytes]]:
        first, second = list[bytes](), list[bytes]()
        streams = [asyncio.ensure_future(host_notices(made)(first.append))]
        await asyncio.sleep(1.2)
        await asyncio.to_thread(cut_off.leave)
        await wait_for(first, 1)
        streams.append(asyncio.ensure_future(host_notices(made)(second.append)))
        await wait_for(second, 1)
        await asyncio.to_thread(cut_off.come_back)
        await wait_for(first, 2)
        await wait_for(second, 2)
        for stream in streams:
            assert not stream.done()
            stream.cancel()
        return first, second

    first, second = asyncio.run(scene())
    assert first == second
    assert [kind_and_state(frame) for frame in first] == [("host", "unreachable"), ("host", "active")]


async def wait_for(frames: list[bytes], count: int) -> None:
    for _ in range(300):
        if len(frames) >= count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(frames)


def kind_and_state(frame: bytes) -> tuple[str, str]:
    kind, data = frame.decode().strip().split("\n")
    found = json.loads(data.removeprefix("data: "))
    assert found.keys() == {"host_state", "host_since"}
    return kind.removeprefix("event: "), found["host_state"]


@pytest.mark.parametrize("status", ["running", "sleeping"])
def test_visitors_of_a_port_are_told_to_come_back(api: Caller, cut_off: CutOff, made: str, status: str) -> None:
    Workspace.objects.update(public_access=True, published_ports=1, status=status, ready=status == "running")
    port = PublicPort.objects.create(workspace_id=made, account_id=api.account.pk, port=8080)
    address = f"{port.hash}.localhost"
    assert ask(address).status_code == (200 if status == "running" else 202)
    cut_off.leave()
    answer = ask(address)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    cut_off.come_back()
    assert ask(address).status_code == (200 if status == "running" else 202)
