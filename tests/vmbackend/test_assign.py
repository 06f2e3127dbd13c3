"""Assignment of a machine that was booted as nobody's, in real machines."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, run, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import KEY, kit, plain, public_key_line, run_with_timeout, start, wait_ready
from tests.vmbackend.told_guest import config_for, expected, tell
from vmbackend.driver import Boot, Workload
from vmbackend.guest.load_message import assign_message
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt.assigning import assign_guest
from vmbackend.libvirt.driver import LibvirtDriver

from .conftest import Harness

__all__ = ["kit", "plain", "shell_image", "start"]
pytestmark = pytest.mark.vm
SECOND = 10**9
# What it prints is in its log: environment, user and directory of a program.
SHOW = 'echo "$OWN $HOSTNAME" $(id -u) $(pwd); exec sleep 9999'
GIVEN = Boot(
    hostname="given",
    env={"OWN": "yes", "PATH": "/bin"},
    cmd=("sh", "-c", SHOW),
    user="dev",
    working_dir="/home/made",
    workloads=(Workload("web", ("sh", "-c", f"echo web; {SHOW}"), user="root", working_dir="/tmp"),),
    wait_for_init=True,
    ssh=True,
    ssh_keys=(public_key_line(KEY),),
    directories=("/home/made", "/volume"),
)


@pytest.fixture
def unassigned(start: Start) -> harness.Machine:
    return wait_ready(start(unassigned=True))


def test_a_machine_that_was_nobodys_is_as_if_it_had_booted_for_its_owner(unassigned: harness.Machine) -> None:
    """Its name, files, keys, environment, programs and workloads; its clock and generation."""
    before = run(unassigned, "cat /run/kit/generation; echo $OWN; /run/kit/bin/guest workloads list")[0][1].split()
    message = assign_message(config_for(unassigned, GIVEN))
    answer = tell(unassigned, message)
    assert answer[:-1] == expected(message)
    assert abs(int(answer[-1]) - time.time_ns()) < 60 * SECOND
    assert unassigned.line() == "ready"
    show = "cat /etc/hostname /run/kit/generation; cat /etc/hosts; echo $OWN; stat -c '%a %u' /volume"
    lines = run(unassigned, show)[0][1].split("\n")
    assert lines[:2] == ["given", message.generation]
    assert before == [before[0]]
    assert before[0] != message.generation
    assert "10.0.2.15 given" in lines
    assert lines[-3:] == ["yes", "755 0", ""]
    assert run(unassigned, harness.log_text("cmd"))[0][1] == "yes given 1000 /home/made\n"
    wait_for_output(unassigned, harness.log_text("web"), "web\nyes given 0 /tmp\n")
    assert log_in(unassigned) == "yes given\n"
    assert run(unassigned, "/run/kit/bin/guest workloads list")[0][1].split()[:2] == ["web", "running"]
    assert tell(unassigned, assign_message(config_for(unassigned, GIVEN)))[:2] == ["failed", "unassigned"]


def log_in(machine: harness.Machine) -> str:
    """Return the environment that a user's own command over the second SSH server has."""

    async def work() -> str:
        async with machine.connect_user(KEY) as connection:
            return str((await connection.run("echo $OWN $HOSTNAME")).stdout)

    return str(run_with_timeout(work()))


def test_the_exit_of_the_given_program_is_reported_after_ready_and_powers_off(unassigned: harness.Machine) -> None:
    """Its configuration is as large as one may be, in many pieces of the port."""
    boot = Boot(hostname="given", cmd=("sh", "-c", "exit 7"), env={"A": "x" * (120 << 10), "B": "x" * (120 << 10)})
    message = assign_message(config_for(unassigned, boot))
    assert tell(unassigned, message)[:-1] == expected(message)
    assert [unassigned.line(), unassigned.line()] == ["ready", "exit 7 0"]
    unassigned.wait_off()


def test_a_message_that_is_cut_off_or_no_message_changes_nothing(unassigned: harness.Machine) -> None:
    """The guest answers the next request, after a while if the former one is incomplete."""
    message = assign_message(config_for(unassigned, GIVEN))
    encoded = message.encode(time.time_ns())
    wrong = [encoded[:12] + b"\x09" + encoded[13:], encoded[:8] + b"\xff" * 16 + b"\n"]
    for each in wrong:
        assert unassigned.send_requests(each)[0] == "failed message Protocol error"
    tell(unassigned, message, cut=len(encoded) - 10)
    time.sleep(6)
    assert unassigned.resync_guest(b"entropy")[0] == "fresh"
    assert run(unassigned, "cat /etc/hostname; echo $OWN")[0][1] == "guest-1\n\n"
    assert tell(unassigned, message)[:-1] == expected(message)


def test_a_machine_of_somebody_is_not_given_away(plain: harness.Machine) -> None:
    answer = tell(plain, assign_message(config_for(plain, GIVEN)))
    assert answer[:2] == ["failed", "unassigned"]
    assert run(plain, "cat /etc/hostname")[0][1] == "guest-1\n"


def test_the_driver_gives_a_paused_machine_its_configuration(libvirt_harness: Harness) -> None:
    driver = libvirt_harness.driver
    assert isinstance(driver, LibvirtDriver)
    spec = libvirt_harness.spec()
    nobody = replace(spec, boot=Boot(hostname="nobody", unassigned=True))
    identity = driver.prepare(nobody)
    driver.start(spec.id)
    driver.wait_ready(spec.id, libvirt_harness.boot_seconds)
    driver.pause(spec.id)
    given = replace(spec, boot=Boot(hostname="given", env={"OWN": "yes"}, wait_for_init=True, cmd=("sleep", "9999")))
    files = driver._inventory.machine_dir(spec.id)
    driver._provisioner._configure(files, given)
    driver._events.begin_start(files, wake=False)
    assign_guest(driver._domains.find(driver._libvirt.connection, spec.id), files)
    driver.wait_ready(spec.id, libvirt_harness.boot_seconds)
    address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    shown = libvirt_harness.pool.call(address, lambda session: session.execute("echo $OWN $(hostname)"), 150)
    assert shown.stdout == b"yes given\n"
