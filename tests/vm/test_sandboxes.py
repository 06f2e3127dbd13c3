"""A sandbox on a real machine, by both addresses: its token, sleep and wake by a request, stop, rotation, delete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.sandboxes.sockets.client import Refused
from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from tests.vm.sandbox_sockets import connect, connect_patiently
from tests.vm.sleep_command import SleepCommand

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]


@pytest.fixture
def sandbox(api: Api) -> Iterator[dict[str, Any]]:
    config = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}
    made = api.call("POST", "/sandbox", 201, json={"name": "agent", "image": BUSYBOX, "config": config})["sandbox"]
    yield made
    api.http.delete(f"/sandbox/{made['id']}")
    until(lambda: api.http.get(f"/sandbox/{made['id']}").status_code == 404, 60, "the sandbox is deleted")


def ask(url: str, token: str, expect: int = 200, *, host: str = "", **body: Any) -> dict[str, Any]:
    """One command at the sandbox's address."""
    headers = {"Authorization": f"Bearer {token}", **({"Host": host} if host else {})}
    answer = httpx.post(f"{url}/terminal", json=body, headers=headers, timeout=120, trust_env=False)
    assert answer.status_code == expect, answer.text
    found: dict[str, Any] = answer.json()
    assert found["success"] is (expect == 200)
    return found


def test_a_sandbox_lives_by_its_token(
    instance: TestInstance, api: Api, sandbox: dict[str, Any], sleep_command: SleepCommand
) -> None:
    url, token, path = sandbox["url"], sandbox["token"], f"/sandbox/{sandbox['id']}"
    assert sandbox["status"] == "active"
    assert url == f"{instance.settings.base_url}/s/{sandbox['id']}"
    by_host = sandbox["id"].replace("_", "-") + ".localhost"
    assert ask(url, token, command="echo 1 >/dev/shm/kept; uname -s")["output"].strip() == "Linux"
    assert ask(instance.settings.base_url, token, host=by_host, command="cat /dev/shm/kept")["output"].strip() == "1"
    assert ask(url, "sbt_unknown", 401, command="true")["error"] == "Unauthorized"
    escaping = "setsid setsid sh -c 'trap \"\" TERM HUP INT; sleep 7777' & sleep 7777"
    assert ask(url, token, command=escaping, timeout=1500)["exitCode"] == 124
    assert ask(url, token, command="grep -l '777[7]' /proc/[1-9]*/cmdline")["output"] == ""

    sleep_command.sleep(sandbox["workspace_id"])
    assert api.call("GET", path)["sandbox"]["status"] == "suspended"
    assert sandbox["workspace_id"] not in machine_pids(instance)
    assert ask(url, token, command="cat /dev/shm/kept")["output"].strip() == "1"
    assert api.call("GET", path)["sandbox"]["status"] == "active"
    sleep_command.sleep(sandbox["workspace_id"])
    assert ask(instance.settings.base_url, token, host=by_host, command="cat /dev/shm/kept")["output"].strip() == "1"

    def measured() -> bool:
        metrics = api.call("GET", f"{path}/metrics")["metrics"]
        return bool(metrics["memory_usage"] > 0 and metrics["uptime"] > 0)

    until(measured, 30, "its use is measured")
    renewed = api.call("POST", f"{path}/regenerate-token")["token"]
    assert ask(url, token, 403, command="true")["error"] == "Forbidden"
    assert ask(url, renewed, command="true")["exitCode"] == 0

    assert api.call("POST", f"{path}/stop")["sandbox"]["status"] == "stopped"
    refused = ask(url, renewed, 409, command="true")
    assert (refused["code"], refused["details"]["status"]) == ("vm_not_running", "stopped")
    assert api.call("POST", f"{path}/start")["sandbox"]["status"] == "active"
    assert ask(url, renewed, command="test -e /dev/shm/kept")["exitCode"] == 1

    assert sandbox["id"] not in [row["id"] for row in api.rows()]
    api.call("DELETE", path)
    assert ask(url, renewed, 401, command="true")["error"] == "Unauthorized"
    assert sandbox["workspace_id"] not in machine_pids(instance)


def test_a_sandbox_without_auto_start_is_made_and_off(instance: TestInstance, api: Api) -> None:
    config = {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}
    body = {"name": "off", "image": BUSYBOX, "config": config, "autoStart": False}
    made = api.call("POST", "/sandbox", 201, json=body)["sandbox"]
    assert (made["status"], made["workspace_id"] in machine_pids(instance)) == ("stopped", False)
    ask(made["url"], made["token"], 409, command="true")
    assert api.call("POST", f"/sandbox/{made['id']}/start")["sandbox"]["status"] == "active"
    assert ask(made["url"], made["token"], command="uname -s")["output"].strip() == "Linux"
    api.call("DELETE", f"/sandbox/{made['id']}")


def test_a_terminal_outlives_streams_and_sleep(
    instance: TestInstance, api: Api, sandbox: dict[str, Any], sleep_command: SleepCommand
) -> None:
    client = connect(sandbox, sandbox["token"])
    script = "stty -echo; while read line; do echo begin-$line; sleep 2; echo end-$line; done"
    shell = {"command": "/bin/sh", "args": ["-c", script]}
    terminal = client.ask("terminal_created", action="terminal_create", **shell)["terminalId"]

    def say(word: str) -> None:
        client.send(a="i", id=terminal, d=f"{word}\n")

    def resume(received: int) -> None:
        attached = client.ask("terminal_attached", action="terminal_attach", id=terminal, offset=received)
        assert (attached["offset"], attached["skipped"]) == (received, 0)

    # What the program writes while no client is connected is not lost; input that streams had not passed on would be.
    say("one")
    received = len(client.read_until(terminal, b"begin-one\r\n"))
    instance.kill("streams")
    client.socket.close()
    client = connect_patiently(sandbox, sandbox["token"])
    resume(received)
    assert client.read_until(terminal, b"end-one\r\n") == b"end-one\r\n"
    received += len(b"end-one\r\n")

    client.socket.close()
    sleep_command.sleep(sandbox["workspace_id"])
    client = connect(sandbox, sandbox["token"])
    resume(received)
    say("two")
    assert client.read_until(terminal, b"end-two\r\n") == b"begin-two\r\nend-two\r\n"

    api.call("POST", f"/sandbox/{sandbox['id']}/regenerate-token")
    assert client.wait_closed().code == 4401
    with pytest.raises(Refused) as refused:
        connect(sandbox, sandbox["token"])
    assert refused.value.status == 403
