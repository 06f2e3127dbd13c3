"""One instance for most of the tests, with one machine in it that no test may affect."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.free_ports import free_port
from tests.vm.client import Api
from tests.vm.instances import TestInstance, new_instance
from tests.vm.onhost import assert_nothing_is_left_over, machine_pids
from tests.vm.sleep_command import SleepCommand, open_sleep_command


@dataclass(frozen=True)
class Witness:
    """A running machine: `boot` is a number that its kernel draws at each boot and keeps in memory."""

    id: str
    ip: str
    boot: str
    pid: int


@pytest.fixture(scope="package")
def push_port() -> int:
    """Where the instance may send notifications to; a test that listens there stands for a push service."""
    return free_port()


@pytest.fixture(scope="package")
def instance(push_port: int) -> Iterator[TestInstance]:
    with new_instance(PLATFORM_PRIVATE_RECEIVERS=f"127.0.0.1:{push_port}") as made:
        made.start()
        yield made


@pytest.fixture(scope="package")
def api(instance: TestInstance) -> Api:
    return instance.api()


@pytest.fixture(scope="package")
def sleep_command(instance: TestInstance) -> Iterator[SleepCommand]:
    with open_sleep_command(instance.instance, instance.settings) as made:
        yield made


@pytest.fixture(scope="package")
def witness(instance: TestInstance, api: Api) -> Witness:
    made = api.create()
    return Witness(made["id"], made["ip"], boot_of(api, made["id"]), machine_pids(instance)[made["id"]])


@pytest.fixture
def clean(instance: TestInstance, api: Api, witness: Witness) -> Iterator[None]:
    """After the test the witness runs as before, and what the test made is deleted and has left nothing."""
    yield
    instance.wait_until_running()
    assert_unnoticed(instance, api, witness)
    api.delete_all(keep=[witness.id])
    assert_nothing_is_left_over(instance, api)


@pytest.fixture(scope="module")
def kept(api: Api, witness: Witness) -> Iterator[list[str]]:
    """Of files whose `clean` is `end_of_test`: the workspace that a test has left running for the next one, if any. A
    boot takes longer than what most tests ask of it.
    """
    yield []
    api.delete_all(keep=[witness.id])


@pytest.fixture
def running(api: Api, kept: list[str], clean: None) -> str:
    """A running workspace: one of the test before, or a new one."""
    return kept[0] if kept else str(api.create()["id"])


def end_of_test(
    instance: TestInstance, api: Api, witness: Witness, kept: list[str], others: Sequence[str] = ()
) -> None:
    """As at the end of `clean`, but that one running workspace and these others stay."""
    instance.wait_until_running()
    assert_unnoticed(instance, api, witness)
    staying = {witness.id, *others}
    kept[:] = [row["id"] for row in api.rows() if row["status"] == "running" and row["id"] not in staying][:1]
    api.delete_all(keep=[*staying, *kept])
    assert_nothing_is_left_over(instance, api)


def is_right(clock: str, *, since: float) -> bool:
    """Whether the whole seconds that a guest's clock had, read between `since` and now, are right to half a second."""
    return since - 1.5 < float(clock) < time.time() + 0.5


def boot_of(api: Api, workspace_id: str) -> str:
    """The number that the machine's kernel drew when it booted."""
    return api.output(workspace_id, ["cat", "/proc/sys/kernel/random/boot_id"])


def assert_unnoticed(instance: TestInstance, api: Api, witness: Witness) -> None:
    answer = api.patiently("POST", f"/workspace/{witness.id}/exec", json={"cmd": "cat /proc/sys/kernel/random/boot_id"})
    assert answer["stdout"].strip() == witness.boot
    assert machine_pids(instance)[witness.id] == witness.pid
    assert api.get(witness.id)["status"] == "running"
