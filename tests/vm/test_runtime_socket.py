"""The runtime of a real machine through the edge: terminals and watchers, sleep, and the death of streams."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.sandboxes.sockets.client import Closed, Refused, WebSocketClient
from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
CONFIG = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}
COUNT = "stty -opost; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"


class FollowingClient(WebSocketClient):
    """Has the output since the last `state`, which says where it begins."""

    def _add_message(self, message: str | bytes) -> None:
        super()._add_message(message)
        if isinstance(message, str) and self.messages[-1]["type"] == "state":
            self.output[int(self.messages[-1]["id"])] = bytearray()


class Runtime:
    """The inside of one workspace, by its token."""

    def __init__(self, id: str, url: str, token: str) -> None:
        self.id, self.url, self.token = id, url, token

    def call(self, method: str, path: str, **request: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.request(method, f"{self.url}{path}", headers=headers, timeout=120, trust_env=False, **request)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run(self, script: str) -> None:
        assert self.call("POST", "/exec", json={"cmd": script})["exit_code"] == 0

    def scrollback(self, id: str) -> bytes:
        return base64.b64decode(self.call("GET", f"/terminals/{id}/scrollback")["scrollback"])

    def connect(self) -> WebSocketClient:
        url = urlsplit(self.url)
        address, host = (str(url.hostname), int(url.port or 80)), f"{url.hostname}:{url.port}"
        return FollowingClient(address, f"{url.path}/ws?token={self.token}", host=host)

    def connect_patiently(self) -> WebSocketClient:
        """While streams is started again it cannot be reached."""

        def tried() -> WebSocketClient | None:
            try:
                return self.connect()
            except (Refused, Closed, OSError):
                return None

        found: WebSocketClient = until(tried, 60, "a socket is accepted")
        return found


@pytest.fixture
def runtime(api: Api) -> Runtime:
    made = api.call("POST", "/workspace", 201, json={"name": "inside", "image": BUSYBOX, "config": CONFIG})["workspace"]
    access = api.call("POST", f"/workspace/{made['id']}/runtime-api-access/enable", 200)
    return Runtime(made["id"], access["url"], access["token"])


def test_terminals_and_watchers_go_on_through_sleep_and_the_death_of_streams(
    instance: TestInstance, runtime: Runtime, sleep_command: SleepCommand
) -> None:
    runtime.run("mkdir /watched")
    terminal = runtime.call("POST", "/terminals", json={"cmd": ["sh", "-c", COUNT]})["id"]
    watcher = runtime.call("POST", "/watchers", json={"path": "/watched"})["watcher"]["id"]
    client = runtime.connect()
    state = client.expect("state")
    client.read_until(int(terminal), b"line ")
    seen = state["offset"] + len(client.output[int(terminal)])
    client.socket.close()

    sleep_command.sleep(runtime.id)
    assert runtime.id not in machine_pids(instance)
    instance.kill("streams")
    client = runtime.connect_patiently()  # which wakes it
    assert client.expect("ready")["watcher_id"] == watcher
    assert client.expect("state")["id"] == terminal
    client.send(channel="terminal", type="attach", id=terminal, offset=seen)
    assert client.expect("state")["offset"] == seen  # what the terminal has said meanwhile came before it
    client.read_until(int(terminal), b"line 30\n")
    runtime.run("touch /watched/new")
    found = client.expect("change")
    assert (found["op"], found["path"], found["watcher_id"]) == ("create", "/watched/new", watcher)

    kept = runtime.scrollback(terminal)
    assert kept.startswith(b"line 1\nline 2\n")
    assert b"".join(b"line %d\n" % number for number in range(1, 31)) in kept
    assert bytes(client.output[int(terminal)]) in runtime.scrollback(terminal)
    runtime.call("DELETE", f"/terminals/{terminal}")
    assert client.expect("exit") == {"channel": "terminal", "type": "exit", "id": terminal, "code": 137}
    client.socket.close()
