"""Programs in a machine that serve terminals, watches, commands and files are killed while two accounts use theirs."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.sandboxes.sockets.client import WebSocketClient
from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX
from tests.vm.instances import TestInstance
from tests.vm.sandbox_sockets import connect

pytestmark = [pytest.mark.vm, pytest.mark.campaign, pytest.mark.usefixtures("clean")]

NEW = {"name": "agent", "image": BUSYBOX, "config": {"memory_mb": 128, "disk_size_mb": 64, "cpus": 1}}
COUNT = "i=0; while :; do i=$((i+1)); echo {0}-$i-; sleep 0.02; done"
# Neither a hang-up nor the end of its session ends the inner one.
ESCAPING = "trap '' HUP TERM; setsid sh -c 'echo $$ >/escaped; exec sleep 7777' & sleep 7777"
# Processes of the guest by the beginning of their command line.
NAMED = """for p in /proc/[0-9]*; do
case "$({{ tr '\\0' ' ' <$p/cmdline; }} 2>/dev/null)" in '{0} '*) echo ${{p#/proc/}};; esac; done"""
WATCHED, UPLOADED = "/watched", "/uploaded"


@dataclass
class Use:
    """Commands and files of one sandbox by threads, until `over`; what they saw."""

    over: threading.Event = field(default_factory=threading.Event)
    done: dict[str, int] = field(default_factory=lambda: {"commands": 0, "files": 0})
    refused: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def goes_on(self) -> None:
        """Both have been answered again, twice: the first answer may have been under way."""
        before = dict(self.done)
        until(lambda: all(self.done[name] >= before[name] + 2 for name in before), 60, f"use goes on: {self.refused}")


class Holder:
    """Of a sandbox's token."""

    def __init__(self, api: Api, word: str) -> None:
        self.api, self.word = api, word
        self.sandbox: dict[str, Any] = api.call("POST", "/sandbox", 201, json={**NEW, "name": word})["sandbox"]
        headers = {"Authorization": f"Bearer {self.sandbox['token']}"}
        self.http = httpx.Client(base_url=self.sandbox["url"], headers=headers, timeout=120, trust_env=False)
        self.run(f"mkdir {WATCHED} {UPLOADED}")

    def run(self, command: str) -> str:
        answer = self.http.post("/terminal", json={"command": command})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found["exitCode"] == 0, found
        return str(found["output"])

    def delete(self) -> None:
        path = f"/sandbox/{self.sandbox['id']}"
        self.api.http.delete(path)
        until(lambda: self.api.http.get(path).status_code == 404, 60, "the sandbox is deleted")

    @contextmanager
    def used(self) -> Iterator[Use]:
        use = Use()
        threads = [threading.Thread(target=self._repeat, args=(use, name)) for name in use.done]
        for thread in threads:
            thread.start()
        try:
            yield use
        finally:
            use.over.set()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert use.wrong == []

    def _repeat(self, use: Use, name: str) -> None:
        number = 0
        while not use.over.wait(0.02):
            number += 1
            try:
                answer = self._command(number) if name == "commands" else self.upload(number)
            except Exception as exc:
                use.wrong.append(f"{name} {number}: {exc!r}")
                return
            if answer.status_code == 200:
                use.done[name] += 1
            else:
                use.refused.append((answer.status_code, answer.json()["code"]))

    def _command(self, number: int) -> httpx.Response:
        said = f"{self.word} {number}"
        answer = self.http.post("/terminal", json={"command": f"echo {said}", "timeout": 30000})
        assert answer.status_code != 200 or answer.json()["output"] == f"{said}\n", answer.text
        return answer

    def upload(self, number: int) -> httpx.Response:
        """One that was stored is whole; the name is written again and again."""
        content = f"{self.word} {number}\n".encode() * 5000
        body = {"filePath": f"{UPLOADED}/{number % 3}", "content": base64.b64encode(content).decode()}
        if (answer := self.http.post("/files/upload", json=body)).status_code == 200:
            answer = self.http.post("/files/download", json={"filePath": body["filePath"]})
            assert answer.status_code != 200 or answer.content == content, number
        return answer


@pytest.fixture
def other_api(instance: TestInstance) -> Api:
    """Of an account of its own."""
    done = instance.command("manage", "--", "account_create", "hold-deaths", "--plan", "pro", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    return Api(instance.settings.base_url, made["client_id"], made["client_secret"])


@pytest.fixture
def holders(api: Api, other_api: Api) -> Iterator[tuple[Holder, Holder]]:
    made: list[Holder] = []
    try:
        made.append(Holder(api, "mine"))
        made.append(Holder(other_api, "theirs"))
        yield made[0], made[1]
    finally:
        for holder in made:
            holder.delete()


def created(client: WebSocketClient, script: str) -> int:
    return int(client.ask("terminal_created", action="terminal_create", command=script)["terminalId"])


def counted(output: bytes, word: str) -> int:
    """How many lines there are, of which none is missing, doubled or another terminal's; the last may be incomplete."""
    lines = output.split(b"\r\n")
    assert lines[:-1] == [f"{word}-{number}-".encode() for number in range(1, len(lines))]
    assert f"{word}-{len(lines)}-".encode().startswith(lines[-1])
    return len(lines) - 1


def see_more(client: WebSocketClient, terminal: int, word: str, lines: int = 20) -> None:
    wanted = counted(bytes(client.output.get(terminal, b"")), word) + lines
    while counted(bytes(client.output.get(terminal, b"")), word) < wanted:
        client.receive()


def watch(client: WebSocketClient) -> None:
    client.ask("watch_started", type="watch", path=WATCHED)


def lost_watch_goes_on(client: WebSocketClient, holder: Holder, name: str) -> None:
    """The client learns that it must read the folder again; then changes are reported as before."""
    lost = client.expect("watch_overflow")
    assert (lost["path"], lost["reason"]) == (WATCHED, "reconnected")
    holder.run(f"touch {WATCHED}/{name}")
    while client.expect("watch_add")["path"] != f"{WATCHED}/{name}":
        pass


def kill(holder: Holder, program: str) -> None:
    """The command itself is lost with what it kills, or was answered before."""
    answer = holder.http.post("/terminal", json={"command": f"kill -9 $({NAMED.format(program)})"})
    found = answer.json()
    assert (answer.status_code, found.get("code"), found.get("error")) in (
        (200, None, ""), (503, "VM_UNAVAILABLE", found.get("error")),
    ), answer.text  # fmt: skip


def named(holder: Holder, program: str) -> list[str]:
    return holder.run(NAMED.format(program)).split()


def expect_losses(client: WebSocketClient, terminals: dict[int, str]) -> None:
    """Each is reported as lost once, after output of which nothing is missing; its id names nothing any more."""
    lost = [client.expect("terminal_error") for _ in terminals]
    assert {each["terminalId"] for each in lost} == set(terminals)
    assert {each["code"] for each in lost} == {"terminal_not_found"}
    for id, word in terminals.items():
        lines = counted(bytes(client.output[id]), word) if word else 0
        assert lines >= 20 or not word
        for action in ("terminal_attach", "get_state", "terminal_close"):
            client.send(action=action, id=id, terminalId=id, offset=len(client.output.get(id, b"")), requestId=action)
            refused = client.expect("terminal_error")
            assert (refused["code"], refused["requestId"]) == ("terminal_not_found", action)


def assert_nothing_is_left(holder: Holder, *, terminals: int, watches: int) -> None:
    """In the guest: no process of a lost terminal or command, no group without one, no file of what was cut off."""
    assert len(named(holder, "guest hold")) == 1
    until(lambda: not named(holder, "sleep 7777"), 60, "what had left its session ends")
    groups = "ls -d /sys/fs/cgroup/kit/t-* | wc -l"
    until(lambda: int(holder.run(groups)) == terminals, 60, "former groups are removed")
    until(lambda: len(named(holder, "guest watch")) == watches, 60, "former watches end")
    shared = holder.run("ls -A /dev/shm").split()
    assert not [name for name in shared if name.startswith(".ask-")], shared


def test_terminals_are_lost_with_the_hold_only_and_nothing_hangs(holders: tuple[Holder, Holder]) -> None:
    victim, witness = holders
    with (
        connect(victim.sandbox, victim.sandbox["token"]) as client,
        connect(victim.sandbox, victim.sandbox["token"]) as second,
        connect(witness.sandbox, witness.sandbox["token"]) as other,
        victim.used() as use,
        witness.used() as other_use,
    ):
        theirs = created(other, COUNT.format("theirs"))
        lost = {created(client, COUNT.format("first")): "first", created(client, COUNT.format("second")): "second"}
        escaping = created(client, ESCAPING)
        shared = min(lost)
        second.ask("terminal_attached", action="terminal_attach", id=shared, offset=0)
        for each in (client, second, other):
            watch(each)
        for id, word in lost.items():
            see_more(client, id, word)
        see_more(second, shared, "first")
        until(lambda: victim.run("cat /escaped 2>/dev/null || true"), 60, "it has left its session")

        kill(victim, "guest hold")
        expect_losses(client, {**lost, escaping: ""})
        expect_losses(second, {shared: "first"})
        for number, each in enumerate((client, second)):
            lost_watch_goes_on(each, victim, f"after-hold-{number}")
        after = created(client, COUNT.format("after"))
        assert after not in (*lost, escaping)
        use.goes_on()
        see_more(client, after, "after")
        assert_nothing_is_left(victim, terminals=1, watches=2)

        # Its own process keeps the terminals: without a connection they only wait.
        kill(victim, "dropbear")
        use.goes_on()
        see_more(client, after, "after", lines=100)
        for number, each in enumerate((client, second)):
            lost_watch_goes_on(each, victim, f"after-dropbear-{number}")
        assert_nothing_is_left(victim, terminals=1, watches=2)

        see_more(other, theirs, "theirs")
        other_use.goes_on()
        assert other_use.refused == []
        assert set(use.refused) <= {(503, "VM_UNAVAILABLE")}, use.refused
        assert [each for each in (*client.messages, *second.messages) if each["type"] == "terminal_error"] == []
        assert [each["type"] for each in other.messages if each["type"] != "connected"] == []
    files = f"ls -A {UPLOADED}"
    until(lambda: sorted(victim.run(files).split()) == ["0", "1", "2"], 60, "what was cut off is removed")
