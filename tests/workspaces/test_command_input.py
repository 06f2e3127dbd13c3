"""Standard input of a command that comes in parts."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.workspaces.command_streams import BOX, KEY, events_in, put, refused, streamed
from workspaces.commands import input as command_input

pytestmark = pytest.mark.django_db(transaction=True)


def served(api: Caller, cmd: Any, work: Callable[[Request], Awaitable[None]]) -> list[tuple[str, Any]]:
    """The events of a command with input in parts, beside which `work` runs."""

    async def both() -> list[tuple[str, Any]]:
        request = streamed(api, cmd, stdin_key=KEY, encoding="base64")
        task = asyncio.ensure_future(request.run())
        await work(request)
        await asyncio.wait_for(task, 60)
        return events_in(request.body)

    return asyncio.run(both())


def written(events: list[tuple[str, Any]]) -> bytes:
    return b"".join(b64decode(data["data"]) for kind, data in events if kind == "stdout")


def test_what_is_sent_is_answered_while_the_command_runs(api: Caller, box: str) -> None:
    async def work(request: Request) -> None:
        assert (await put(api, 0, b"one\n")).json() == {"success": True, "bytes_written": 4}
        await until(lambda: b"stdout" in request.body, 20)
        await put(api, 4, b"\xff\0", eof=True)

    events = served(api, "cat", work)
    assert (written(events), events[-1][1]["exit_code"]) == (b"one\n\xff\0", 0)


def test_input_has_no_limit(api: Caller, box: str) -> None:
    part = bytes(range(256)) * 4096

    async def work(request: Request) -> None:
        for number in range(12):
            assert (await put(api, number * len(part), part)).status == 200
        assert (await put(api, 12 * len(part), b"", eof=True)).status == 200

    assert written(served(api, "wc -c", work)).strip() == b"%d" % (12 * len(part))


def test_a_part_that_is_sent_again_is_there_once(api: Caller, box: str) -> None:
    async def work(request: Request) -> None:
        for offset, data in ((0, b"abc"), (0, b"abc"), (0, b"abcde"), (2, b"cd")):
            assert (await put(api, offset, data)).json()["bytes_written"] == len(data)
        missing = await put(api, 6, b"x")
        assert (missing.status, missing.json()["code"]) == (409, "conflict")
        for _ in range(2):
            assert (await put(api, 5, b"f", eof=True)).status in (200, 404)

    assert written(served(api, "cat; sleep 1", work)) == b"abcdef"


def test_a_command_that_does_not_read_takes_no_more_and_nothing_is_lost(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command_input, "ROOM_SECONDS", 1)
    part = b"x" * (1 << 20)

    async def work(request: Request) -> None:
        sent = 0
        while (answer := await put(api, sent, part)).status == 200:
            sent += len(part)
        assert answer.json()["code"] == "input_full"
        assert sent < 6 << 20
        (tmp_path / "go").touch()
        assert (await put(api, sent, part, eof=True)).status == 200
        lengths.append(sent + len(part))

    lengths: list[int] = []
    events = served(api, f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; wc -c", work)
    assert [int(written(events))] == lengths


def test_a_command_that_has_closed_its_input_says_so(api: Caller, box: str) -> None:
    async def work(request: Request) -> None:
        sent = 0
        while (answer := await put(api, sent, b"y" * 500_000)).status == 200:
            sent += 500_000
        assert (answer.status, answer.json()["code"]) == (409, "input_closed")

    served(api, "exec <&-; sleep 2", work)


def test_an_input_ends_with_its_command_and_is_its_accounts_alone(api: Caller, stranger: Caller, box: str) -> None:
    async def work(request: Request) -> None:
        assert (await put(api, 0, b"a")).status == 200
        theirs = Request(f"{BOX}/exec/{KEY}/input?offset=0", stranger.headers, "POST", b"x")
        await theirs.run()
        assert theirs.status == 404
        again = streamed(api, "cat", stdin_key=KEY)
        await again.run()
        assert (again.status, again.json()["code"]) == (409, "conflict")
        await put(api, 1, b"", eof=True)

    assert written(served(api, "cat", work)) == b"a"
    assert refused(Request(f"{BOX}/exec/{KEY}/input?offset=0", api.headers, "POST", b"x")) == (404, "not_found")


@pytest.mark.parametrize(
    ("target", "data", "status", "code"),
    [
        ("?offset=-1", b"a", 400, "validation_error"),
        ("", b"a", 400, "validation_error"),
        ("?offset=0", {"a": 1}, 415, "unsupported_media_type"),
        ("?offset=0", b"a" * ((1 << 20) + 1), 413, "payload_too_large"),
    ],
)
def test_a_wrong_part_is_refused(api: Caller, box: str, target: str, data: Any, status: int, code: str) -> None:
    assert refused(Request(f"{BOX}/exec/{KEY}/input{target}", api.headers, "POST", data)) == (status, code)


@pytest.mark.parametrize("body", [{"stdin_key": "short", "stream": True}, {"stdin_key": KEY}])
def test_a_key_is_long_and_of_a_stream(api: Caller, box: str, body: dict[str, Any]) -> None:
    answer = api.post(f"{BOX}/exec", {"cmd": "cat", **body})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["stdin_key"])
