"""Watches of a sandbox and the sleep of its machine."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.sandboxes.sockets.client import Closed, WebSocketClient
from tests.vm.client import Api
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.sandbox_sockets import connect, connect_patiently
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
FOLDER = "/w"
MAX_WATCHES = 8


@pytest.fixture
def sandbox(api: Api) -> dict[str, Any]:
    config = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}
    made: dict[str, Any] = api.call(
        "POST", "/sandbox", 201, json={"name": "watched", "image": BUSYBOX, "config": config}
    )["sandbox"]
    command_run(made, f"mkdir {FOLDER}")
    return made


def command_run(sandbox: dict[str, Any], command: str) -> None:
    """It wakes the machine where it sleeps."""
    headers = {"Authorization": f"Bearer {sandbox['token']}"}
    url = f"{sandbox['url']}/terminal"
    answer = httpx.post(url, json={"command": command}, headers=headers, timeout=120, trust_env=False)
    assert (answer.status_code, answer.json().get("exitCode")) == (200, 0), answer.text


def start(client: WebSocketClient) -> None:
    """Begin a watch; changes are reported from its answer on."""
    client.send(type="watch", path=FOLDER)
    while not (found := [each for each in client.messages if each["type"] in ("watch_started", "watch_error")]):
        client.receive()
    client.messages.remove(found[0])
    assert found[0]["type"] == "watch_started", found


def seen(client: WebSocketClient, path: str) -> dict[str, Any]:
    """The addition of a path, or the loss of what may have been it."""
    while True:
        for found in list(client.messages):
            client.messages.remove(found)
            assert found["type"] in ("watch_add", "watch_change", "watch_overflow"), found
            if found["path"] == path or found["type"] == "watch_overflow":
                return found
        client.receive()


def test_a_watch_over_an_open_socket_goes_on_across_sleep_and_wake(
    instance: TestInstance, sandbox: dict[str, Any], sleep_command: SleepCommand
) -> None:
    client = connect(sandbox, sandbox["token"])
    start(client)
    for number in range(3):
        sleep_command.sleep(sandbox["workspace_id"])
        assert sandbox["workspace_id"] not in machine_pids(instance)
        path = f"{FOLDER}/{number}"
        command_run(sandbox, f"touch {path}")
        try:
            while (event := seen(client, path))["type"] == "watch_overflow":
                assert (event["path"], event["reason"]) == (FOLDER, "reconnected")
                path += "-later"
                command_run(sandbox, f"touch {path}")
        except Closed:
            # It was looked whether the sandbox runs just while it slept: the client knows, and begins again.
            client = connect(sandbox, sandbox["token"])
            start(client)


def test_after_a_kill_of_the_platform_in_its_sleep_all_watches_can_be_begun_again(
    instance: TestInstance, sandbox: dict[str, Any], sleep_command: SleepCommand
) -> None:
    client = connect(sandbox, sandbox["token"])
    for _ in range(MAX_WATCHES):
        start(client)
    sleep_command.sleep(sandbox["workspace_id"])
    instance.kill("streams")
    client.socket.close()
    client = connect_patiently(sandbox, sandbox["token"])
    for _ in range(MAX_WATCHES):
        start(client)
    command_run(sandbox, f"touch {FOLDER}/new")
    for _ in range(MAX_WATCHES):
        assert seen(client, f"{FOLDER}/new")["type"] == "watch_add"
