"""Real machines whose driver dies; each step is a process of its own, as vmhost is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.vm

_OTHER_PROCESS = """
    import os, signal, sys
    from pathlib import Path
    from tests.vmbackend.libvirt_factory import IMAGE, make_settings
    from vmbackend.driver import Boot, MachineSpec
    from vmbackend.libvirt.driver import LibvirtDriver

    folder, instance, subnet, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    import ipaddress
    settings = make_settings(
        folder, uri=f"qemu:///embed?root={folder}/r", instance=instance, subnet=ipaddress.ip_network(subnet)
    )
    driver = LibvirtDriver(settings)
    driver.open(lambda event: print("event", event.kind, event.reason, event.exit_code, flush=True))
    ip = str(settings.subnet.network_address + 5)
    if step.startswith("start"):
        command = ("/bin/sh", "-c", "sleep 6; exit 9")
        driver.prepare(
            MachineSpec(id="m1", image=IMAGE, cpus=1, memory_mb=192, disk_mb=64, ip=ip, boot=Boot("h", cmd=command))
        )
        driver.start("m1")
        if step == "start-and-wait":
            driver.wait_ready("m1", 60)
        os.kill(os.getpid(), signal.SIGKILL)
    if step == "wait":
        driver.wait_ready("m1", 60)
    import time
    time.sleep(float(sys.argv[5]))
    print("state", driver.state("m1"), flush=True)
    os._exit(0)
"""


class TestDeath:
    """Each step is a process of its own, as vmhost is."""

    @pytest.fixture
    def host(self, short):
        from .libvirt_factory import free_subnet, make_settings, tear_down

        subnet = free_subnet()
        instance = f"d{os.getpid() % 0xFFFFF:05x}"
        yield lambda *step: self._step(short, instance, subnet, *step)
        tear_down(make_settings(short, instance=instance, subnet=subnet))
        short.mkdir(exist_ok=True)

    def _step(self, folder, instance, subnet, step, seconds="0.5"):
        code = textwrap.dedent(_OTHER_PROCESS)
        command = [sys.executable, "-c", code, str(folder), instance, str(subnet), step, seconds]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout

    def _kill(self, folder):
        from .libvirt_factory import qemu_pids

        (pid,) = qemu_pids(folder / "m")
        os.kill(pid, signal.SIGKILL)

    def test_a_driver_killed_during_a_boot_is_followed_by_one_that_sees_it_ready(self, host):
        host("start")
        said = host("wait")
        assert "event ready" in said
        assert "state running" in said

    def test_a_machine_killed_without_a_driver_is_crashed(self, host, short):
        host("start-and-wait")
        self._kill(short)
        said = host("look")
        assert "event stopped crashed" in said
        assert "state off" in said

    def test_an_exit_code_that_nobody_heard_is_told_before_the_stop(self, host):
        host("start-and-wait")
        time.sleep(9)
        said = host("look", "4")
        assert said.index("event main_exited None 9") < said.index("event stopped shutdown")
        assert "state off" in said
