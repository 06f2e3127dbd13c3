"""The socket of a workspace's runtime: the output of all terminals and the events of all watchers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.sandboxes.sockets.client import Refused, WebSocketClient
from tests.sandboxes.sockets.conftest import Box, Streams
from vmbackend.guest.hold import HoldClient
from workspaces.models import Workspace
from workspaces.runtime.access import runtime_disable, runtime_enable, runtime_rotate
from workspaces.runtime.tokens import make_gateway_token, make_raw_token

T = TypeVar("T")
SH = ["sh", "-c"]


class Runtime:
    """A sandbox's workspace with its runtime on."""

    def __init__(self, box: Box) -> None:
        self.box = box
        runtime_enable(workspace=self.workspace, actor="owner")
        self.token = make_gateway_token(self.workspace)[0]

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(pk=self.box.sandbox.workspace_id)

    def connect(
        self, *, path: str = "/r/ws", token: str | None = None, streams: Streams | None = None
    ) -> WebSocketClient:
        target = f"{path}?token={self.token if token is None else token}"
        self.box.opened.append(WebSocketClient((streams or self.box.streams).socket, target))
        return self.box.opened[-1]

    def call(self, work: Callable[[HoldClient], Awaitable[T]]) -> T:
        """What another process does with the guest."""

        async def run() -> T:
            client = self.box.hold.client()
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def terminal(self, script: str) -> int:
        """A terminal that nobody is attached to."""

        async def create(client: HoldClient) -> int:
            made = await client.create_terminal([*SH, script], scrollback=65_536)
            await made.detach()
            return made.id

        return self.call(create)

    def watcher(self, folder: Path) -> int:
        async def keep(client: HoldClient) -> int:
            return (await client.kept_watches.keep(str(folder))).id

        return self.call(keep)


@pytest.fixture
def runtime(box: Box) -> Runtime:
    return Runtime(box)


def frame(client: WebSocketClient, wanted: str, **fields: Any) -> dict[str, Any]:
    """The next frame of that type with these fields; those before it are kept."""
    kept = []
    try:
        while True:
            found = client.expect(wanted)
            if fields.items() <= found.items():
                return found
            kept.append(found)
    finally:
        client.messages.extendleft(reversed(kept))


def changes(client: WebSocketClient, count: int) -> list[tuple[str, str]]:
    found = [client.expect("change") for _ in range(count)]
    return [(each["op"], Path(each["path"]).name) for each in found]


@pytest.mark.parametrize("path", ["/r/ws", "/r/ws/", "/r/runtimes/default/ws", "/r/runtimes/local/ws", "/r/{id}/ws"])
def test_it_has_what_terminals_write_from_its_opening_on(runtime: Runtime, path: str) -> None:
    id = runtime.terminal("echo before; read line; echo after $line; exit 3")
    time.sleep(0.3)
    client = runtime.connect(path=path.format(id=runtime.workspace.pk))
    state = frame(client, "state", id=str(id), channel="terminal")
    assert (state["start"], state["offset"]) == (0, len("before\r\n"))
    client.send_raw(bytes((id,)) + b"given\n")
    assert client.read_until(id, b"after given\r\n") == b"given\r\nafter given\r\n"
    assert frame(client, "exit", id=str(id)) == {"channel": "terminal", "type": "exit", "id": str(id), "code": 3}


def test_a_terminal_that_comes_later_is_sent_from_its_first_byte(runtime: Runtime) -> None:
    first, second = runtime.connect(), runtime.connect(streams=runtime.box.another_process())
    id = runtime.terminal("echo at once; sleep 60")
    for client in (first, second):
        assert frame(client, "state", id=str(id))["offset"] == 0
        assert client.read_until(id, b"once") == b"at once\r\n"[: len(client.output[id])]


def test_a_terminal_of_a_sandboxs_socket_is_there_and_the_other_way_round(runtime: Runtime) -> None:
    client, other = runtime.connect(), runtime.box.connect()
    made = other.ask("terminal_created", action="terminal_create", command="cat")["terminalId"]
    frame(client, "state", id=str(made))
    client.send_raw(bytes((made,)) + b"typed\n")
    other.read_until(made, b"typed\r\ntyped\r\n")
    id = runtime.terminal("sleep 60")
    assert id in {each["terminalId"] for each in other.ask("terminal_list", action="terminal_list")["terminals"]}


def test_what_was_missed_is_sent_from_an_offset(runtime: Runtime) -> None:
    id = runtime.terminal("stty -opost; seq 1000; sleep 60")
    time.sleep(0.5)
    client = runtime.connect()
    state = frame(client, "state", id=str(id))
    client.send(channel="terminal", type="attach", id=str(id), offset=0)
    client.read_until(id, b"1000\n")
    assert bytes(client.output[id]) == "".join(f"{line}\n" for line in range(1, 1001)).encode()
    client.send(channel="terminal", type="attach", id=str(id), offset=state["offset"] + 1)
    assert frame(client, "error")["code"] == "validation_error"


def test_what_is_gone_is_told(runtime: Runtime) -> None:
    id = runtime.terminal("stty -opost; head -c 600000 /dev/zero | tr '\\0' x; sleep 60")
    time.sleep(1.5)
    client = runtime.connect()
    start = frame(client, "state", id=str(id))["start"]
    assert start > 0
    client.send(channel="terminal", type="attach", id=str(id), offset=0)
    assert frame(client, "skipped", id=str(id))["bytes"] == start
    while len(client.output.get(id, b"")) < 600_000 - start:
        client.receive()


def test_a_size_is_changed(runtime: Runtime) -> None:
    id = runtime.terminal("while read _; do stty size; done")
    client = runtime.connect()
    frame(client, "state", id=str(id))
    client.send(channel="terminal", type="resize", id=str(id), cols=91, rows=17)
    client.send_raw(bytes((id,)) + b"\n")
    client.read_until(id, b"17 91\r\n")


def test_a_removed_terminal_has_ended_by_a_signal(runtime: Runtime) -> None:
    id = runtime.terminal("sleep 60")
    client = runtime.connect()
    frame(client, "state", id=str(id))
    runtime.call(lambda held: held.close_terminal(id))
    assert frame(client, "exit", id=str(id))["code"] == 137
    client.send_raw(bytes((id,)) + b"x")
    assert frame(client, "error", id=str(id))["code"] == "terminal_not_found"


def test_events_of_a_watcher_come_to_every_socket(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    clients = [runtime.connect(), runtime.connect(streams=runtime.box.another_process())]
    id = runtime.watcher(tmp_path)
    for client in clients:
        ready = frame(client, "ready", watcher_id=str(id))
        assert ready == {"channel": "watcher", "type": "ready", "watcher_id": str(id), "root": str(tmp_path), "dirs": 2}
    (tmp_path / "deep/new").write_text("x")
    for client in clients:
        assert changes(client, 1) == [("create", "new")]
    (tmp_path / "deep/new").rename(tmp_path / "moved")
    for client in clients:
        assert changes(client, 2) == [("rename", "new"), ("create", "moved")]
    (tmp_path / "moved").write_text("y")
    for client in clients:
        assert changes(client, 1) == [("write", "moved")]
    (tmp_path / "moved").unlink()
    for client in clients:
        found = client.expect("change")
        assert (found["op"], found["path"], found["channel"]) == ("remove", str(tmp_path / "moved"), "watcher")


def test_a_watcher_outlives_sockets_and_processes(runtime: Runtime, tmp_path: Path) -> None:
    id = runtime.watcher(tmp_path)
    first = runtime.connect()
    frame(first, "ready", watcher_id=str(id))
    runtime.box.streams.kill()
    runtime.box.streams.start()
    (tmp_path / "unseen").write_text("")
    time.sleep(0.5)
    again = runtime.connect()
    frame(again, "ready", watcher_id=str(id))
    (tmp_path / "seen").write_text("")
    assert changes(again, 1) == [("create", "seen")]


def test_nothing_is_lost_between_the_watchers_beginning_and_the_sockets_news(runtime: Runtime, tmp_path: Path) -> None:
    client = runtime.connect()

    async def work(held: HoldClient) -> int:
        made = await held.kept_watches.keep(str(tmp_path))
        for number in range(50):
            (tmp_path / f"{number:02}").write_text("")
        return made.id

    id = runtime.call(work)
    frame(client, "ready", watcher_id=str(id))
    assert sorted(changes(client, 50)) == [("create", f"{number:02}") for number in range(50)]


@pytest.mark.parametrize("how", ["folder", "removal"])
def test_the_end_of_a_watcher_is_told(runtime: Runtime, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    id = runtime.watcher(folder)
    client = runtime.connect()
    frame(client, "ready", watcher_id=str(id))
    if how == "folder":
        folder.rmdir()
    else:
        runtime.call(lambda held: held.kept_watches.end(id))
    assert "has ended" in frame(client, "overflow", watcher_id=str(id))["message"]


def test_a_client_that_reads_nothing_of_a_busy_folder_is_told_of_its_loss(runtime: Runtime, tmp_path: Path) -> None:
    id = runtime.watcher(tmp_path)
    slow, quick = runtime.connect(), runtime.connect()
    for client in (slow, quick):
        frame(client, "ready", watcher_id=str(id))
    before = runtime.box.streams.memory()
    for number in range(20_000):
        (tmp_path / f"{number:05}{'x' * 200}").write_text("")
    seen = set()
    while len(seen) < 20_000:
        for each in [message for message in quick.messages if message["type"] == "change"]:
            quick.messages.remove(each)
            seen.add(each["path"])
        quick.receive()
    assert runtime.box.streams.memory() - before < 16 << 20
    assert frame(slow, "overflow", watcher_id=str(id))["message"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        ('{"channel": "terminal", "type": "other"}', "unknown_frame"),
        ('{"channel": "watcher", "type": "resize"}', "unknown_frame"),
        ('{"channel": "terminal", "type": "resize", "id": [], "cols": 1, "rows": 1}', "validation_error"),
        ('{"channel": "terminal", "type": "resize", "id": "7", "cols": 0, "rows": 1}', "validation_error"),
        ('{"channel": "terminal", "type": "resize", "id": "7", "cols": 1, "rows": 1}', "terminal_not_found"),
        ('{"channel": "terminal", "type": "resize", "id": "999", "cols": 1, "rows": 1}', "terminal_not_found"),
        ('{"channel": "terminal", "type": "attach", "id": "7", "offset": -1}', "validation_error"),
        (b"", "validation_error"),
        (b"\x07x", "terminal_not_found"),
        (b"\x07" + bytes((1 << 20) + 1), "input_too_large"),
    ],
)
def test_a_wrong_frame_is_answered_and_the_socket_goes_on(runtime: Runtime, sent: str | bytes, code: str) -> None:
    client = runtime.connect()
    client.send_raw(sent)
    found = frame(client, "error")
    assert (found["channel"], found["code"]) == ("terminal", code)
    id = runtime.terminal("echo goes on; sleep 60")
    client.read_until(id, b"goes on")


def refused(runtime: Runtime, **options: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        runtime.connect(**options)
    assert json.loads(caught.value.body)["success"] is False
    return caught.value


def test_only_a_token_of_the_present_epoch_opens_it(runtime: Runtime) -> None:
    assert refused(runtime, token="").status == 401
    assert refused(runtime, token="rtg_x").status == 401
    assert refused(runtime, token=runtime.box.token).status == 401
    assert refused(runtime, path="/r/ws_another/ws").status == 403
    former = runtime.token
    runtime_rotate(workspace=runtime.workspace, actor="owner")
    assert refused(runtime, token=former).status == 403
    runtime.connect(token=make_raw_token(runtime.workspace))


@pytest.mark.parametrize("change", [runtime_rotate, runtime_disable])
def test_it_ends_with_its_epoch(runtime: Runtime, change: Any) -> None:
    client = runtime.connect()
    begun = time.monotonic()
    change(workspace=runtime.workspace, actor="owner")
    assert client.wait_closed().code == 4401
    assert time.monotonic() - begun < 10


def test_a_workspace_has_sixteen_beside_those_of_its_sandbox(runtime: Runtime) -> None:
    runtime.box.connect()
    for _ in range(16):
        runtime.connect()
    assert refused(runtime).status == 429


def open_files(runtime: Runtime) -> int:
    return len(list(Path(f"/proc/{runtime.box.streams.process.pid}/fd").iterdir()))


def test_sockets_that_come_and_go_leave_nothing(runtime: Runtime, tmp_path: Path) -> None:
    runtime.watcher(tmp_path)
    runtime.terminal("sleep 60")
    for _ in range(30):
        client = runtime.connect()
        frame(client, "ready")
        client.socket.close()
    time.sleep(1)
    files = open_files(runtime)
    for _ in range(30):
        client = runtime.connect()
        client.socket.close()
    time.sleep(1)
    assert open_files(runtime) <= files + 5
