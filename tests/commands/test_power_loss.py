"""Nothing that was answered is lost where all processes of an instance end at once, its PostgreSQL among them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest

from supervise import control
from supervise.postgres import data_folder
from supervise.postgres_processes import server_processes
from tests.commands.test_supervise import wait_until
from tests.processes import is_running
from tests.vm.client import Api
from tests.vm.instances import TestInstance, new_instance

pytestmark = pytest.mark.usefixtures("own_server")
WRITERS = 4
# Of each round, before everything is killed under load; an account may have 100 namespaces.
ANSWERS = 30


@pytest.fixture
def served() -> Iterator[TestInstance]:
    settings = {"PLATFORM_VM_BACKEND": "fake", "PLATFORM_HOST_NAME": "power-loss", "PLATFORM_DATABASE_URL": ""}
    with new_instance(images=False, **settings) as made:
        made.start()
        yield made


def kill_everything(instance: TestInstance) -> None:
    """All of them are stopped first, so that none sees another one's end."""
    supervisor, data = control.supervisor_pid(instance.instance), data_folder(instance.instance)
    assert supervisor is not None

    def of_instance() -> set[int]:
        found = {supervisor, *instance.process_tree(), *server_processes(data)}
        return {pid for pid in found if is_running(pid)}

    def send(sign: signal.Signals) -> set[int]:
        for pid in (found := of_instance()):
            with suppress(ProcessLookupError):
                os.kill(pid, sign)
        return found

    send(signal.SIGSTOP)
    # Again and again: one that was about to begin had no environment to be known by. One that waits for the disk ends
    # when the disk has answered.
    wait_until(lambda: not send(signal.SIGKILL), 120)


def write_until_cut_off(api: Api, prefix: str, answered: list[str], stop: threading.Event) -> None:
    """`answered` gets the id of each namespace whose creation was answered."""
    number = 0
    while not stop.is_set():
        number += 1
        try:
            response = api.http.post("/namespaces", json={"name": f"{prefix} {number}"})
        except httpx.TransportError:
            return
        if response.status_code == 201:
            answered.append(response.json()["data"]["id"])


def test_what_was_answered_is_there_after_a_loss_of_power_under_load(served: TestInstance) -> None:
    data = data_folder(served.instance)
    assert "fsync = off" not in (data / "postgresql.auto.conf").read_text()
    answered: list[str] = []
    for prefix in ("first", "second"):
        stop, api, before = threading.Event(), served.api(), len(answered)
        with ThreadPoolExecutor(WRITERS) as pool:
            for writer in range(WRITERS):
                pool.submit(write_until_cut_off, api, f"{prefix} {writer}", answered, stop)
            try:
                wait_until(lambda before=before: len(answered) >= before + ANSWERS, 240)
            finally:
                kill_everything(served)
                stop.set()
        assert (data / "postmaster.pid").exists()
        served.start()
        stored = {row[0] for row in served.query("SELECT id FROM namespaces_namespace")}
        assert set(answered) <= stored
