"""Commands whose output is an event stream."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.workspaces.command_streams import BOX, events_in, run, streamed, text_of
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.output import OutputPart
from workspaces.commands import requested, streaming
from workspaces.commands.capacity import command_capacity
from workspaces.commands.views import EVENTS_EXAMPLE

pytestmark = pytest.mark.django_db(transaction=True)


class SlowRequest(Request):
    """One whose client reads only while `reads` is set."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reads = asyncio.Event()

    async def _send(self, message: dict[str, Any]) -> None:
        await super()._send(message)
        if message.get("body"):
            await self.reads.wait()


def test_the_example_of_the_description_is_what_is_sent(api: Caller, box: str) -> None:
    request = streamed(api, "echo one; sleep 0.1; echo two >&2; sleep 0.1; exit 3")
    asyncio.run(request.run())
    assert request.headers["Content-Type"] == "text/event-stream"
    assert request.headers["Cache-Control"] == "no-cache, no-transform"
    assert re.sub(r'(?<="duration_ms":)\d+', "12", request.body.decode()) == EVENTS_EXAMPLE


def test_output_comes_while_the_command_runs(api: Caller, box: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(api, f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two >&2; exit 4")
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"one" in request.body, 20)
        assert command_capacity().used == 1
        (tmp_path / "go").touch()
        await asyncio.wait_for(task, 20)
        names = [kind for kind, _ in events_in(request.body)]
        assert names == ["stdout", "stderr", "exit"]
        assert events_in(request.body)[-1][1]["exit_code"] == 4

    asyncio.run(work())


def test_a_streamed_command_takes_what_others_take(api: Caller, box: str) -> None:
    events = run(api, 'cat; echo "$A $PWD"', stdin="typed ", env={"A": "x"}, working_dir="/")
    assert text_of(events, "stdout").startswith("typed x /")
    run(api, ["sh", "-c", "echo only err >&2"])
    assert run(api, "true")[0][0] == "exit"


def test_bytes_that_come_apart_are_one_character_and_others_are_replaced(api: Caller, box: str) -> None:
    apart = r"printf '\303'; sleep 0.1; printf '\274'; sleep 0.1; printf 'a\377b\342\202'"
    events = run(api, apart)
    assert text_of(events, "stdout") == "\u00fca\ufffdb\ufffd"
    assert next(data["data"] for kind, data in events if kind == "stdout") == "\u00fc"
    assert events[-1][0] == "exit"
    assert next(data["lossy"] for kind, data in events if kind == "stdout") is False
    assert events[-1][1]["lossy"] is True


def test_every_byte_comes_back_as_it_was_given(api: Caller, box: str) -> None:
    given = bytes(range(256)) * 1000
    events = run(api, "tee /dev/stderr", stdin=b64encode(given).decode(), stdin_encoding="base64", encoding="base64")
    for name in ("stdout", "stderr"):
        assert b"".join(b64decode(data["data"]) for kind, data in events if kind == name) == given
    assert not any(data["lossy"] for _, data in events)


def test_output_has_no_limit_and_nothing_of_it_is_lost(api: Caller, box: str) -> None:
    events = run(api, "seq 1 400000; seq 1 1000 >&2")
    assert text_of(events, "stdout") == "".join(f"{n}\n" for n in range(1, 400_001))
    assert text_of(events, "stderr") == "".join(f"{n}\n" for n in range(1, 1001))


def test_a_command_at_its_timeout_gets_sigterm_and_code_124(api: Caller, box: str, tmp_path: Path) -> None:
    events = run(
        api, f"trap 'echo ending > {tmp_path}/ended; exit 0' TERM; echo begun; sleep 30 & wait", timeout_seconds=1
    )
    assert text_of(events, "stdout") == "begun\n"
    kind, end = events[-1]
    assert (kind, end["exit_code"], end["timed_out"]) == ("exit", 124, True)
    assert (tmp_path / "ended").exists()


def test_one_that_closes_its_output_and_goes_on_is_waited_for(api: Caller, box: str, tmp_path: Path) -> None:
    events = run(api, f"echo out; exec >&- 2>&-; sleep 1; touch {tmp_path}/ended; exit 7")
    assert [kind for kind, _ in events] == ["stdout", "exit"]
    assert (events[-1][1]["exit_code"], (tmp_path / "ended").exists()) == (7, True)


def test_a_command_ends_when_its_client_disconnects(api: Caller, box: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(
            api, f"cd {tmp_path}; trap 'echo ended > ended; exit' TERM; echo $$ > pid; echo begun; sleep 30 & wait"
        )
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"begun" in request.body, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: command_capacity().used == 0 and (tmp_path / "ended").exists(), 10)
        await until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists(), 10)

    asyncio.run(work())


def test_one_that_ignores_sigterm_is_killed_when_its_client_disconnects(api: Caller, box: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(api, f"trap '' TERM; echo $$ > {tmp_path}/pid; yes")
        task = asyncio.ensure_future(request.run())
        await until(lambda: len(request.body) > 100_000, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists(), 10)

    asyncio.run(work())


def test_a_client_that_leaves_before_the_command_runs_leaves_nothing(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, ended = [], []

    async def never(*args: Any, **more: Any) -> Any:
        waiting.append(True)
        try:
            await asyncio.sleep(60)
            yield OutputPart("stdout", b"")
        finally:
            ended.append(True)

    monkeypatch.setattr(FakeGuestSession, "execute_streamed", never)

    async def work() -> None:
        request = streamed(api, "true")
        task = asyncio.ensure_future(request.run())
        await until(lambda: waiting, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: ended and command_capacity().used == 0, 10)

    asyncio.run(work())


def test_a_reader_that_does_not_read_stops_the_command_and_loses_nothing(api: Caller, box: str, tmp_path: Path) -> None:
    counted = tmp_path / "count"

    async def work() -> None:
        slow = streamed(
            api,
            f"i=0; while [ $i -lt 120 ]; do i=$((i+1)); head -c 9999 /dev/zero; echo; echo $i > {tmp_path}/count; done",
            SlowRequest,
        )
        task = asyncio.ensure_future(slow.run())
        await until(lambda: slow.body, 20)
        await asyncio.sleep(0.5)
        stopped = counted.read_text()
        await asyncio.sleep(0.5)
        assert counted.read_text() == stopped
        assert int(stopped) < 60  # 600 KB: the pipe, the stream's reader, a part or two
        slow.reads.set()
        await asyncio.wait_for(task, 30)
        events = events_in(slow.body)
        assert len(text_of(events, "stdout")) == 120 * 10_000
        assert events[-1][1]["exit_code"] == 0

    asyncio.run(work())


def test_a_reader_that_never_reads_holds_no_place_after_the_deadline(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested, "EXEC_SLACK_SECONDS", 0.5)

    async def work() -> None:
        slow = streamed(api, "yes", SlowRequest, timeout_seconds=1)
        task = asyncio.ensure_future(slow.run())
        await until(lambda: slow.body, 20)
        await until(lambda: command_capacity().used == 0, 10)
        assert not task.done()
        slow.reads.set()
        await asyncio.wait_for(task, 10)
        kind, error = events_in(slow.body)[-1]
        assert (kind, error["code"], error["status"], error["success"]) == ("error", "output_not_read", 408, False)

    asyncio.run(work())


def test_a_silent_command_sends_heartbeats_and_holds_its_place(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
    request = streamed(api, "sleep 0.5")
    asyncio.run(request.run())
    assert request.body.count(b": heartbeat\n\n") >= 2
    assert [kind for kind, _ in events_in(request.body)] == ["exit"]


def test_only_a_command_whose_output_is_streamed_may_run_for_hours(api: Caller, box: str) -> None:
    answer = api.post(f"{BOX}/exec", {"cmd": "true", "timeout_seconds": 601})
    assert "timeout_seconds" in answer.json()["details"]
    assert text_of(run(api, "echo x", timeout_seconds=86400), "stdout") == "x\n"
    assert api.post(f"{BOX}/exec", {"cmd": "true", "stream": True, "timeout_seconds": 86401}).status_code == 400


def test_what_cannot_be_started_has_the_code_of_a_shell(api: Caller, box: str) -> None:
    for command, code in ((["/no/such/program"], 127), (["/"], 126)):
        for more in ({}, {"stream": True}):
            answer = api.post(f"{BOX}/exec", {"cmd": command, **more})
            assert (answer.status_code, answer.json()["details"]) == (400, {"exit_code": code})
