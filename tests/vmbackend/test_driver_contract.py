"""The driver contract: provisioning, inventory, network, logs and guests. Every backend passes this file."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from vmbackend.bootlog import rotated_path, split_timestamp
from vmbackend.driver import MachineState
from vmbackend.errors import (
    CapacityExceeded,
    ImageNotFound,
    InvalidMachineState,
    MachineNotFound,
)
from vmbackend.policy import NetworkPolicy

from .conftest import Harness, Machine, read_content, write_content

ABSENT = "never_created"

ATTEMPTS = 3


def test_a_prepared_machine_is_off_and_in_the_inventory(harness: Harness):
    spec = harness.spec()
    identity = harness.driver.prepare(spec)
    assert identity.ip == spec.ip
    assert identity.ssh_host_key.startswith("ssh-ed25519 ")
    assert harness.driver.state(spec.id) is MachineState.OFF
    inventory = harness.driver.inventory()
    assert inventory.domains[spec.id] is MachineState.OFF
    assert spec.id in inventory.directories
    assert spec.id in inventory.ids()


def test_preparing_again_keeps_the_disk_and_the_host_key(harness: Harness):
    address = harness.running_machine()
    harness.pool.call(address, write_content)
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    identity = harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip, disk_mb=96))
    assert identity.ssh_host_key == address.host_key
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert harness.pool.call(address, read_content) == b"content"


def test_preparing_again_replaces_the_definition(harness: Harness):
    spec = harness.spec()
    harness.driver.prepare(spec)
    harness.driver.prepare(harness.spec(id=spec.id, memory_mb=256))
    assert harness.driver.definition(spec.id) != {}
    assert list(harness.driver.inventory().domains).count(spec.id) == 1


def test_a_running_machine_cannot_be_prepared(machine: Machine):
    harness, address = machine.harness, machine.address
    with pytest.raises(InvalidMachineState):
        harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip))
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING


def test_a_missing_image_leaves_nothing_behind(harness: Harness):
    spec = harness.spec(image="sha256:" + "0" * 64)
    with pytest.raises(ImageNotFound):
        harness.driver.prepare(spec)
    assert spec.id not in harness.driver.inventory().ids()


def test_a_disk_larger_than_the_host_is_refused_before_anything_is_written(harness: Harness):
    spec = harness.spec(disk_mb=harness.driver.capacity().disk_mb * 4)
    with pytest.raises(CapacityExceeded):
        harness.driver.prepare(spec)
    assert spec.id not in harness.driver.inventory().ids()


def test_a_machine_with_more_memory_than_the_host_never_runs(harness: Harness):
    spec = harness.spec(memory_mb=harness.driver.capacity().memory_mb * 4)

    def prepare_and_start() -> None:
        harness.driver.prepare(spec)
        harness.driver.start(spec.id)

    with pytest.raises(CapacityExceeded):
        prepare_and_start()
    assert harness.driver.state(spec.id) in (MachineState.OFF, MachineState.ABSENT)


@pytest.mark.parametrize(
    "method", ["start", "pause", "resume", "sleep", "resync_guest", "reset_disk", "definition", "set_network"]
)
def test_an_unknown_machine_is_not_found(harness: Harness, method: str):
    arguments = (NetworkPolicy(),) if method == "set_network" else ()
    with pytest.raises(MachineNotFound):
        getattr(harness.driver, method)(ABSENT, *arguments)


def test_waiting_for_an_unknown_machine_is_not_found(harness: Harness):
    with pytest.raises(MachineNotFound):
        harness.driver.wait_ready(ABSENT, 1.0)


def test_destroy_shutdown_and_delete_of_an_absent_machine_are_no_ops(harness: Harness):
    harness.driver.destroy(ABSENT)
    assert harness.driver.shutdown(ABSENT, 5.0) is True
    harness.driver.delete(ABSENT)
    assert harness.driver.state(ABSENT) is MachineState.ABSENT


def test_delete_removes_everything_and_is_idempotent(harness: Harness):
    address = harness.running_machine()
    harness.driver.delete(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ABSENT
    assert address.machine_id not in harness.driver.inventory().ids()
    assert not harness.driver.boot_log(address.machine_id).exists()
    harness.driver.delete(address.machine_id)


def test_the_network_policy_of_running_and_stopped_machines_can_be_changed(harness: Harness):
    spec = harness.spec(network=NetworkPolicy(allow_internet=False))
    harness.driver.prepare(spec)
    harness.driver.set_network(spec.id, NetworkPolicy(ingress_ports=(8080,), egress_ports=(443,)))
    harness.driver.start(spec.id)
    narrow = NetworkPolicy(allow_internet=False, egress=("example.com", "*.example.org", "192.0.2.0/24"))
    harness.driver.set_network(spec.id, narrow)
    harness.driver.set_network(spec.id, narrow)
    harness.require_guest()
    assert spec.id in harness.driver.inventory().firewall


def test_a_network_policy_survives_the_driver_and_is_deleted_with_the_machine(harness: Harness):
    policy = NetworkPolicy(allow_internet=False, egress=("example.com",), ingress_ports=(8080,))
    spec = harness.spec()
    harness.driver.prepare(spec)
    harness.driver.set_network(spec.id, policy)
    harness.reopen_driver()
    shown = json.dumps(harness.driver.definition(spec.id), default=str)
    assert "example.com" in shown
    harness.driver.delete(spec.id)
    assert spec.id not in harness.driver.inventory().ids()


def test_connections_of_an_absent_machine_are_zero_and_closing_them_is_a_no_op(harness: Harness):
    assert harness.driver.count_connections(ABSENT) == 0
    harness.driver.close_connections(ABSENT, [80])


def test_the_definition_contains_no_secret(harness: Harness):
    spec = harness.spec(env={"TOKEN": "s3cr3t-value"}, cmd=("/bin/sh", "-c", "sleep 1 # s3cr3t-value"))
    harness.driver.prepare(spec)
    assert "s3cr3t-value" not in json.dumps(harness.driver.definition(spec.id), default=str)


def test_close_is_idempotent(harness: Harness):
    harness.driver.close()
    harness.driver.close()
    harness.driver = harness.make_driver()
    harness.driver.open(harness.events.append)


def test_capacity_subtracts_running_machines(harness: Harness):
    harness.require_guest()
    # Other processes of the host start and end, too: one of some attempts shows it.
    for _ in range(ATTEMPTS):
        before = harness.driver.capacity()
        harness.running_machine()
        after = harness.driver.capacity()
        assert after.memory_mb == before.memory_mb
        if after.memory_free_mb < before.memory_free_mb:
            break
    assert after.memory_free_mb < before.memory_free_mb
    assert before.arch in ("amd64", "arm64")


def test_the_console_is_written_to_the_boot_log(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.require_guest()
    deadline = time.monotonic() + harness.boot_seconds
    while not harness.driver.boot_log(address.machine_id).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert harness.driver.boot_log(address.machine_id).stat().st_size > 0


def test_the_console_log_of_earlier_starts_is_removed_only_without_keep_logs(harness: Harness):
    spec = harness.spec()
    harness.driver.prepare(spec)
    log = harness.driver.boot_log(spec.id)
    for file in (log, rotated_path(log)):
        file.write_bytes(b"of an earlier start\n")
    harness.driver.prepare(spec)
    assert log.exists()
    assert rotated_path(log).exists()
    harness.driver.prepare(replace(spec, boot=replace(spec.boot, keep_logs=False)))
    assert not log.exists()
    assert not rotated_path(log).exists()


def test_what_a_conversion_changed_begins_a_new_console_log(harness: Harness):
    spec = replace(harness.spec(), image_changes=("image: left out: something",))
    harness.driver.prepare(spec)
    harness.driver.prepare(spec)
    log = harness.driver.boot_log(spec.id)
    assert [split_timestamp(line)[1] for line in log.read_bytes().splitlines()] == [b"image: left out: something"]


def test_the_agent_of_a_running_machine_answers_and_that_of_a_paused_one_does_not(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.require_guest()
    assert harness.driver.agent_responds(address.machine_id, 120)
    harness.driver.pause(address.machine_id)
    assert not harness.driver.agent_responds(address.machine_id, 1)
    with pytest.raises(MachineNotFound):
        harness.driver.agent_responds(ABSENT, 1)
