"""Large bodies are stored for known senders only, and so many bytes for each account at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections

from common import streaming_body
from common.body_rules import RAW
from common.streaming_body import StreamingHandler
from config import large_bodies
from config.large_bodies import SMALL_BYTES, LargeBodies
from tests.callers import Caller
from tests.workspaces.files.test_streaming_uploads import Upload, until

pytestmark = pytest.mark.django_db(transaction=True)
JSON = {"content-type": "application/json"}
LARGE = SMALL_BYTES + 1
CHUNKED = {"transfer-encoding": "chunked"}


class Handler(StreamingHandler):
    """Counts the bodies that it begins to store."""

    stored = 0

    async def read_body(self, receive: Callable[[], Awaitable[Any]]) -> Any:
        async def counting() -> Any:
            message = await receive()
            self.stored += len(message.get("body", b""))
            return message

        return await super().read_body(counting)


def length(size: int) -> dict[str, str]:
    return {"content-length": str(size)}


def command(stdin: int, cmd: str = "wc -c") -> bytes:
    return json.dumps({"cmd": cmd, "stdin": "x" * stdin}).encode()


@pytest.mark.parametrize("framing", [length(LARGE), CHUNKED])
@pytest.mark.parametrize("route", ["overlay/files", "exec", "nothing"])
def test_nothing_of_a_large_body_of_an_unknown_sender_is_stored(
    api: Caller, made: str, route: str, framing: dict[str, str]
) -> None:
    async def work() -> Any:
        handler = Handler()
        sent = {**JSON, **framing, "X-Client-Secret": "wrong"}
        upload = Upload(api, "", sent, route=route, application=LargeBodies(handler))
        upload.give(b"x" * LARGE, more=False)
        status, body = await upload.answer()
        return status, body["code"], handler.stored, upload.taken

    # Read to its end all the same, so that the sender gets the error.
    assert async_to_sync(work)() == (401, "unauthorized", 0, 1)


def test_a_large_body_of_a_known_sender_is_carried_out(api: Caller, made: str) -> None:
    async def work() -> Any:
        body = command(2 * LARGE)
        call = Upload(api, "", {**JSON, **length(len(body))}, route="exec", application=LargeBodies(StreamingHandler()))
        call.give(body[:LARGE])
        call.give(body[LARGE:], more=False)
        return await call.answer()

    status, answer = async_to_sync(work)()
    assert (status, answer["stdout"].strip()) == (200, str(2 * LARGE))


def test_a_slow_large_body_ends_with_the_credential_that_began_it(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_bodies, "KNOWN_SECONDS", 0.05)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)

    def end() -> None:
        api.account.credentials.update(epoch=99, secret_hash="another")
        connections.close_all()

    async def work() -> Any:
        handler = Handler()
        upload = Upload(api, "", {**JSON, **length(2 * LARGE)}, route="exec", application=LargeBodies(handler))
        upload.give(b"x" * LARGE)
        await until(lambda: handler.stored == LARGE)
        await asyncio.to_thread(end)
        await asyncio.sleep(0.1)
        upload.give(b"x")
        status, body = await upload.answer()
        return status, body["code"], handler.stored

    assert async_to_sync(work)() == (401, "unauthorized", LARGE)


def test_an_account_holds_so_many_bytes_until_its_requests_have_ended(api: Caller, stranger: Caller, made: str) -> None:
    async def work() -> None:
        application = LargeBodies(StreamingHandler(), per_account=2 * LARGE, total=4 * LARGE)
        framed = {**JSON, **length(LARGE)}

        def begun(caller: Caller) -> Upload:
            return Upload(caller, "", framed, route="exec", application=application)

        waiting = [begun(api), begun(api)]
        await until(lambda: application._stored.total() == 2 * LARGE)
        refused = begun(api)
        refused.give(b"x" * LARGE, more=False)
        status, body = await refused.answer()
        assert (status, body["code"]) == (429, "rate_limited")
        # Another account has room of its own; what is streamed or small takes none.
        other = begun(stranger)
        await until(lambda: application._stored.total() == 3 * LARGE)
        small = Upload(api, "", {**JSON, **length(15)}, route="exec", application=application)
        small.give(b'{"cmd": "true"}', more=False)
        assert (await small.answer())[0] == 200
        raw = Upload(api, "/raw", {"content-type": RAW, **length(LARGE)}, application=application)
        raw.give(b"x" * LARGE, more=False)
        assert (await raw.answer())[0] == 200
        for one in (*waiting, other):
            one.leave()
            await one.answer()
        assert application._stored == {}

    async_to_sync(work)()


def test_a_command_holds_its_input_while_it_runs(api: Caller, made: str) -> None:
    async def work() -> None:
        application = LargeBodies(StreamingHandler())
        body = command(LARGE, "sleep 1")
        call = Upload(api, "", {**JSON, **length(len(body))}, route="exec", application=application)
        call.give(body, more=False)
        await until(lambda: application._stored.total() == len(body))
        await asyncio.sleep(0.5)
        assert application._stored.total() == len(body)
        assert (await call.answer())[0] == 200
        assert application._stored == {}

    async_to_sync(work)()
