"""The signal and the grace time with which the main program of a machine is stopped."""

from __future__ import annotations

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from vmbackend.driver import Boot, Workload
from vmbackend.guest.bootconfig import GuestConfig, encode_config
from vmbackend.guest.stop_signal import signal_number

__all__ = ["kit", "shell_image", "start"]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("SIGTERM", 15),
        ("INT", 2),
        ("sigquit", 3),
        ("SIGWINCH", 28),
        ("9", 9),
        ("64", 64),
        ("00015", 15),
        ("000015", 15),
        ("RTMIN", 34),
        ("SIGRTMIN+3", 37),
        ("rtmin+15", 49),
        ("RTMAX", 64),
        ("SIGRTMAX-14", 50),
        ("POLL", 29),
        ("SIGCLD", 17),
    ],
)
def test_a_signal_is_read_by_name_or_number(name: str, number: int) -> None:
    assert signal_number(name) == number


@pytest.mark.parametrize(
    "name", ["", "0", "000000", "00065", "65", "-1", "9999999999", "SIGSIGINT", "RTMIN+16", "RTMAX-15", "NOPE", "²"]
)
def test_what_is_no_signal_is_not_taken_for_one(name: str) -> None:
    assert signal_number(name) is None


def test_a_signal_that_is_not_known_is_shown_in_one_line_of_limited_length() -> None:
    boot = Boot(hostname="h", stop_signal="A\nB" + "C" * 1000)
    config = GuestConfig(boot, "10.0.0.2/24", "10.0.0.1", (), b"key", "ssh-ed25519 AAAA")
    records = encode_config(config).split(b"\0")
    assert b"unknown_stop_signal=A?B" + b"C" * 37 in records
    assert not any(record.startswith(b"stop_signal=") for record in records)


@pytest.mark.vm
def test_the_main_program_gets_its_images_signal_and_the_whole_grace_time(start: Start) -> None:
    """Six seconds are more than a machine gives whose configuration names no time."""
    traps = "trap 'echo quit; sleep 6; echo done; exit 0' QUIT; trap 'echo term' TERM"
    script = f"{traps}; echo up; while :; do sleep 0.1; done"
    machine = wait_ready(start(entrypoint=("sh", "-c", script), stop_signal="SIGQUIT", stop_grace=200))
    wait_for_output(machine, harness.log_text("cmd"), "up\n")
    machine.qmp("system_powerdown")
    assert "programs" not in machine.wait_off()
    log = machine.file_on_disk("/var/log/workspace/cmd.log")
    assert harness.text_of_records(log) == "up\nquit\ndone\n", "nor was SIGTERM sent"


@pytest.mark.vm
def test_a_real_time_signal_is_that_of_the_c_library(start: Start) -> None:
    script = "trap 'echo 37; exit 0' 37; echo up; while :; do sleep 0.1; done"
    machine = wait_ready(start(cmd=("sh", "-c", script), stop_signal="RTMIN+3", stop_grace=200))
    wait_for_output(machine, harness.log_text("cmd"), "up\n")
    machine.qmp("system_powerdown")
    assert machine.line() == "exit 0 0"
    assert "programs" not in machine.wait_off()
    assert harness.text_of_records(machine.file_on_disk("/var/log/workspace/cmd.log")) == "up\n37\n"


@pytest.mark.vm
def test_a_program_that_does_not_end_is_killed_after_the_grace_time(start: Start) -> None:
    ignoring = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    machine = wait_ready(start(entrypoint=ignoring, stop_signal="NOPE", stop_grace=1))
    wait_for_output(machine, harness.log_text("cmd"), "up\n")
    machine.qmp("system_powerdown")
    assert "programs" in machine.wait_off()
    assert "programs have not ended after 1 s" in machine.console()
    assert "the image's stop signal is not known, SIGTERM is sent: NOPE" in machine.console()


@pytest.mark.vm
def test_workloads_get_sigterm_and_the_grace_time(start: Start) -> None:
    script = "trap 'echo term; sleep 6; echo done; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    workload = Workload("w", ("sh", "-c", script))
    machine = wait_ready(start(workloads=(workload,), stop_signal="SIGQUIT", stop_grace=200))
    wait_for_output(machine, harness.log_text("w"), "up\n")
    machine.qmp("system_powerdown")
    assert "programs" not in machine.wait_off()
    assert harness.text_of_records(machine.file_on_disk("/var/log/workspace/w.log")) == "up\nterm\ndone\n"
