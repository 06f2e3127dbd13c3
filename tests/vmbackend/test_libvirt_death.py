"""Real machines whose driver is killed; each step is a separate process, as vmhost is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.vm

Step = Callable[..., str]

_OTHER_PROCESS = """
    import ipaddress, os, signal, sys, threading, time
    from pathlib import Path
    from tests.vmbackend.libvirt_factory import IMAGE, make_settings, qemu_pids
    from vmbackend.driver import Boot, MachineSpec
    from vmbackend.errors import BackendError
    from vmbackend.libvirt import domain
    from vmbackend.libvirt.driver import LibvirtDriver
    from vmbackend.libvirt.starting import Confiner

    folder, instance, subnet, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    settings = make_settings(
        folder, uri=f"qemu:///embed?root={folder}/r", instance=instance, subnet=ipaddress.ip_network(subnet)
    )
    driver = LibvirtDriver(settings)
    driver.open(lambda event: print("event", event.kind, event.reason, event.exit_code, event.machine_id, flush=True))
    memory = settings.machines_dir / "m1" / "memory"

    def kill_self():
        os.kill(os.getpid(), signal.SIGKILL)

    def kill_self_when(condition):
        while not condition():
            time.sleep(0.001)
        kill_self()

    def prepare(*command, number=1):
        ip = str(settings.subnet.network_address + 4 + number)
        boot = Boot("h", cmd=command or None)
        name = f"m{number}"
        driver.prepare(MachineSpec(id=name, image=IMAGE, cpus=1, memory_mb=192, disk_mb=64, ip=ip, boot=boot))

    def start_and_die_before_the_pid():
        states = folder / "r" / "run" / "qemu"
        threading.Thread(target=driver.start, args=("m1",), daemon=True).start()
        kill_self_when(lambda: any(b"pid='0'" in status.read_bytes() for status in states.glob("*.xml")))

    def attempt(call, *arguments):
        try:
            return call(*arguments)
        except BackendError as error:
            return type(error).__name__

    if step.startswith("start"):
        prepare("/bin/sh", "-c", "sleep 6; exit 9")
        driver.start("m1")
        if step == "start-and-wait":
            driver.wait_ready("m1", 300)
        kill_self()
    if step == "die-before-it-runs":
        prepare()
        domain.resume_domain = lambda target: kill_self()
        driver.start("m1")
    if step.startswith("begin"):
        prepare()
        driver.start("m1")
        driver.wait_ready("m1", 300)
    if step == "begin-and-die-in-sleep":
        threading.Thread(target=driver.sleep, args=("m1",), daemon=True).start()
        kill_self_when(lambda: memory.exists() and memory.stat().st_size > 1 << 20)
    if step == "sleep":
        driver.sleep("m1")
    if step == "begin-two":
        prepare(number=2)
        driver.start("m2")
        driver.wait_ready("m2", 300)
        kill_self()
    if step == "die-before-the-pid":
        prepare()
        start_and_die_before_the_pid()
    if step == "wake-and-die-before-the-pid":
        start_and_die_before_the_pid()
    if step == "meet-one-that-does-not-answer":
        (pid,) = qemu_pids(settings.machines_dir, "m1")
        print("refused", attempt(driver.pause, "m1"), attempt(driver.sleep, "m1"), flush=True)
        driver.pause("m2")
        driver.resume("m2")
        print("served", driver.state("m2"), "m2" in driver.samples(["m1", "m2"]), flush=True)
        os.kill(pid, signal.SIGCONT)
        while attempt(driver.pause, "m1"):
            time.sleep(0.05)
        print("settled", driver.state("m1"), flush=True)
        driver.resume("m1")
        os.kill(pid, signal.SIGSTOP)
        print("measured", [attempt(driver.samples, ["m1", "m2"]), "m2" in driver.samples(["m1", "m2"])], flush=True)
        driver.destroy("m1")
    if step == "wake-and-die":
        threading.Thread(target=driver.start, args=("m1",), daemon=True).start()
        kill_self_when(lambda: bool(qemu_pids(settings.machines_dir)))
    if step == "wake-and-die-before-the-limits":
        Confiner.limit = lambda *arguments: kill_self()
        driver.start("m1")
    if step == "wait":
        driver.wait_ready("m1", 300)
    time.sleep(float(sys.argv[5]))
    print("found", driver.state("m1"), sorted(driver.inventory().saved), flush=True)
    if step == "resume":
        (pid,) = qemu_pids(settings.machines_dir, "m1")
        driver.resume("m1")
        rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
        (largest,) = [row.split()[3] for row in rows if row.startswith("Max file size")]
        print("resumed", driver.state("m1"), largest, flush=True)
    if step == "continue":
        driver.start("m1")
        driver.wait_ready("m1", 300)
        driver.resync_guest("m1")
        print("now", driver.state("m1"), sorted(driver.inventory().saved), flush=True)
    os._exit(0)
"""


@pytest.fixture
def step(short: Path) -> Iterator[Step]:
    """Run a step until it exits or is killed; return its output."""
    from .libvirt_factory import free_subnet, make_settings, remove_if_killed, tear_down

    subnet, instance = free_subnet(), f"d{os.getpid() % 0xFFFFF:05x}"
    remove_if_killed(make_settings(short, instance=instance, subnet=subnet))

    def run(name: str, seconds: str = "0.5") -> str:
        code = textwrap.dedent(_OTHER_PROCESS)
        command = [sys.executable, "-c", code, str(short), instance, str(subnet), name, seconds]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.stdout

    yield run
    tear_down(make_settings(short, instance=instance, subnet=subnet))
    short.mkdir(exist_ok=True)


def kill_machine(folder: Path) -> None:
    from .libvirt_factory import qemu_pids

    (pid,) = qemu_pids(folder / "m")
    os.kill(pid, signal.SIGKILL)


def test_a_driver_killed_during_a_boot_is_followed_by_one_that_reports_ready(step: Step) -> None:
    step("start")
    output = step("wait")
    assert "event ready" in output
    assert "found running" in output


def test_a_driver_killed_before_the_machine_runs_leaves_a_machine_that_can_be_started(step: Step) -> None:
    step("die-before-it-runs")
    output = step("continue")
    assert "found paused []" in output or "found off []" in output
    assert "now running []" in output


def test_a_machine_killed_without_a_driver_is_crashed(step: Step, short: Path) -> None:
    step("start-and-wait")
    kill_machine(short)
    output = step("report-state")
    assert "event stopped crashed" in output
    assert "found off" in output


def test_an_exit_code_written_without_a_driver_is_reported_before_the_stop(step: Step) -> None:
    step("start-and-wait")
    time.sleep(9)
    output = step("report-state", "4")
    assert output.index("event main_exited None 9") < output.index("event stopped shutdown")
    assert "found off" in output


def test_a_driver_killed_during_sleep_or_wake_leaves_a_machine_that_the_next_one_continues(step: Step) -> None:
    step("begin-and-die-in-sleep")
    output = step("report-state", "0")
    assert "found running []" in output or "found asleep ['m1']" in output
    assert "now running []" in step("continue", "0")

    assert "found asleep ['m1']" in step("sleep", "0")
    step("wake-and-die")
    assert "now running []" in step("continue", "0")

    # Between the restore and the limits of the process.
    assert "found asleep ['m1']" in step("sleep", "0")
    step("wake-and-die-before-the-limits")
    output = step("resume", "0")
    assert "found paused []" in output
    assert re.search(r"resumed running \d+", output), output

    # Before libvirt noted the process.
    assert "found asleep ['m1']" in step("sleep", "0")
    step("wake-and-die-before-the-pid")
    output = step("continue", "0")
    assert "found asleep ['m1']" in output
    assert "now running []" in output


def test_a_driver_killed_before_libvirt_noted_the_process_leaves_a_machine_that_can_be_started(step: Step) -> None:
    step("die-before-the-pid")
    output = step("continue", "0")
    assert "found off []" in output
    assert "now running []" in output


def spoil_state(folder: Path) -> None:
    """Write what libvirt 9.0 leaves if it is killed while a disk becomes another, and cannot read."""
    (status,) = (folder / "r" / "run" / "qemu").glob("*.xml")
    text = status.read_text()
    target = "<target dev='vdb'"
    assert target in text
    status.write_text(text.replace(target, f"<mirror type='file' job=''><source file='/x'/></mirror>{target}"))


def test_a_machine_that_libvirt_forgot_is_ended_and_can_be_started(step: Step, short: Path) -> None:
    from .libvirt_factory import qemu_pids

    step("begin", "0")
    assert len(qemu_pids(short / "m")) == 1
    spoil_state(short)
    output = step("report-state", "0")
    assert "found off []" in output
    assert qemu_pids(short / "m") == []
    assert "now running []" in step("continue", "0")


def test_a_machine_that_does_not_answer_delays_no_other(step: Step, short: Path) -> None:
    from .libvirt_factory import qemu_pids

    step("begin-two")
    (pid,) = qemu_pids(short / "m", "m1")
    os.kill(pid, signal.SIGSTOP)
    output = step("meet-one-that-does-not-answer", "0")
    assert "refused BackendUnavailable BackendUnavailable" in output
    assert "served running True" in output
    ready = [output.index(f"event ready None None {name}") for name in ("m2", "m1")]
    assert ready[0] < output.index("served") < ready[1] < output.index("measured")
    assert "settled paused" in output
    assert "measured ['BackendUnavailable', True]" in output
    assert "found off []" in output
