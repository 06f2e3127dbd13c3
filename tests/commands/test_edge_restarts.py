"""Requests of two accounts while the servers behind the edge are restarted and killed.

With the real supervisord, granian, uvicorn and Caddy. Each response must be its request's own, whatever dies; nothing
is carried out twice; and where a restart can be bridged, no request fails. Only requests that a killed process was
carrying out are 503.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from supervise import control
from supervise.instance import Instance
from supervise.processes import Process
from tests.commands.running import processes_named, running, start, wait_for_status
from tests.run_extent import WHOLE, campaign_after

Make = Callable[[str], Instance]
THREADS = 16
# Answers of new processes after each restart. The api has nine: about a thousand requests, and more than 100,000 in the
# long version.
ANSWERS = 12_000 if WHOLE else 100
SECONDS = 600


@dataclass
class Load:
    """Threads that send requests of two accounts, of equal length, until `stop`."""

    base: str
    path: str
    statuses: Counter[str] = field(default_factory=Counter)
    answered_by: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> None:
        address = urlsplit(self.base)
        account = ("alice", "bobby")[next(self._numbers) % 2]
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=120)
        while not self._ended.is_set():
            try:
                status = self._exchange(connection, account, f"{next(self._numbers):012}")
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                status = type(error).__name__
            self.statuses[status] += 1

    def _exchange(self, connection: http.client.HTTPConnection, account: str, request_id: str) -> str:
        body = json.dumps({"owner": account, "id": request_id, "words": account * 50})
        headers = {"X-Client-ID": account, "X-Request-ID": request_id, "Content-Type": "application/json"}
        connection.request("POST", self.path, body, headers)
        response = connection.getresponse()
        content = response.read()
        if response.status == 200:
            answer = json.loads(content)
            self.answered_by[answer["pid"]] += 1
            if (answer["client"], answer["id"], answer["body"]) != (account, request_id, body):
                self.wrong.append(f"{body[:60]} got {content[:200]!r}")
        return str(response.status)

    def wait_for_answers(self, number: int, *, not_by: frozenset[int]) -> None:
        before, deadline = self._answers(not_by), time.monotonic() + SECONDS
        while self._answers(not_by) < before + number:
            assert time.monotonic() < deadline, (self.statuses, self.answered_by)
            time.sleep(0.02)

    def _answers(self, not_by: frozenset[int]) -> int:
        return sum(number for pid, number in list(self.answered_by.items()) if pid not in not_by)

    def stop(self) -> None:
        self._ended.set()


@contextmanager
def load(base: str, path: str) -> Iterator[Load]:
    made = Load(base, path)
    threads = [threading.Thread(target=made.run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        made.stop()
        for thread in threads:
            thread.join()


@dataclass
class Server:
    """The process that serves a path, as supervisord runs it."""

    instance: Instance
    listed: list[Process]
    name: str

    @property
    def pid(self) -> int:
        """Waits for one."""
        while not (
            found := [row.pid for row in control.process_states(self.instance) if row.name == self.name and row.pid]
        ):
            time.sleep(0.01)
        return found[0]

    @property
    def workers(self) -> list[int]:
        """None where the process is ending."""
        try:
            return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def everyone(self) -> frozenset[int]:
        return frozenset({self.pid, *self.workers})


def end_main(server: Server) -> None:
    os.kill(server.pid, signal.SIGTERM)


def end_while_it_starts(server: Server) -> None:
    """Workers that do not serve yet must not miss the signal: they would serve on, and be killed with what they do."""
    before = server.pid
    os.kill(before, signal.SIGTERM)
    while (pid := server.pid) == before or len(server.workers) < 2:
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)


def kill_main(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)


def reload_workers(server: Server) -> None:
    os.kill(server.pid, signal.SIGHUP)


def kill_one_worker(server: Server) -> None:
    os.kill(server.workers[0], signal.SIGKILL)


def kill_all_workers(server: Server) -> None:
    """Two deaths within seconds; granian gives up."""
    for pid in server.workers:
        os.kill(pid, signal.SIGKILL)


def kill_everyone(server: Server) -> None:
    for pid in server.everyone():
        os.kill(pid, signal.SIGKILL)


def stop_and_start_all(server: Server) -> None:
    control.stop_instance(server.instance, lambda _: None)
    start(server.instance, server.listed)


def take_socket_away(server: Server) -> None:
    """For a second: the edge cannot connect, and tries again."""
    path = server.instance.run_dir / f"{server.name}.sock"
    away = path.with_name("away.sock")
    path.rename(away)
    time.sleep(1)
    away.rename(path)


BRIDGED: dict[str, list[Callable[[Server], None]]] = {
    "api": [end_main, end_while_it_starts, kill_main, reload_workers],
    "streams": [end_main],
}
IN_FLIGHT: dict[str, list[Callable[[Server], None]]] = {
    "api": [kill_one_worker, kill_all_workers, kill_everyone],
    "streams": [kill_main],
}
SERVERS = {
    "api": ("/workspace", "tests.commands.echo_app:application"),
    "streams": ("/workspace/ws_1/exec", "tests.commands.echo_app:asgi"),
}


# A process that is killed while it writes its answer leaves a part of it, which its client notices by the length.
CUT_OFF = "IncompleteRead"


def interrupted(made: Load) -> int:
    """Requests that were in flight in a process that was killed."""
    return made.statuses["503"] + made.statuses[CUT_OFF]


@pytest.mark.timeout(3600 if WHOLE else 900)
@pytest.mark.parametrize("name", campaign_after(1, SERVERS))
def test_no_request_gets_anothers_body_while_servers_die(make_instance: Make, name: str) -> None:
    instance, (path, target) = make_instance("restarts"), SERVERS[name]
    listed = [
        replace(process, command=(*process.command, target)) if process.name == name else process
        for process in processes_named(instance, name, "edge")
    ]
    server = Server(instance, listed, name)
    with running(instance, listed, {path: 200}) as base:
        with load(base, path) as made:
            for restart in BRIDGED[name]:
                before = server.everyone()
                restart(server)
                made.wait_for_answers(ANSWERS, not_by=before)
                assert set(made.statuses) == {"200"}, (restart, made.statuses)
            take_socket_away(server)
            made.wait_for_answers(ANSWERS, not_by=frozenset())
            assert set(made.statuses) == {"200"}, made.statuses
            for restart in IN_FLIGHT[name]:
                before, failed = server.everyone(), interrupted(made)
                restart(server)
                made.wait_for_answers(ANSWERS, not_by=before)
                assert interrupted(made) - failed <= THREADS, (restart, made.statuses)
            assert set(made.statuses) <= {"200", "503", CUT_OFF}, made.statuses
            before, failed = server.everyone(), interrupted(made)
            stop_and_start_all(server)
            wait_for_status(base + path, 200)
            made.wait_for_answers(ANSWERS, not_by=before)
            assert interrupted(made) == failed, made.statuses
        assert made.wrong == []
        executed = Counter((instance.state / "executed").read_text().split())
        assert [request for request, times in executed.items() if times > 1] == []
