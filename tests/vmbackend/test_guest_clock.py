"""The rate of a guest's clock, whatever the host did while it booted."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from vmbackend.libvirt.host_tsc import HostTsc

from .conftest import Harness
from .test_sleep_contract import read_clocks


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


@contextmanager
def interrupted(machines_dir: Path) -> Iterator[None]:
    """Stop the machines' processes again and again for up to 60 ms, as a busy host's scheduler does."""
    from .libvirt_factory import qemu_pids

    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(random.uniform(0.001, 0.006)):
            pids = qemu_pids(machines_dir)
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(random.uniform(0.001, 0.06) if number == signal.SIGSTOP else 0)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.vm
def test_a_clock_keeps_its_rate_when_the_host_was_busy_during_the_boot(harness: Harness) -> None:
    with interrupted(harness.settings.machines_dir):
        address = harness.running_machine()
    definition = str(harness.driver.definition(address.machine_id)["xml"])
    given = re.search(r"tsc_early_khz=(\d+)", definition)
    measured = HostTsc().khz()
    assert measured is not None
    assert given is not None
    assert abs(int(given[1]) - measured) < measured / 1000
    first = read_clocks(harness, address)
    time.sleep(3)
    last = read_clocks(harness, address)
    assert last[0] - first[2] - 0.1 < last[1] - first[1] < last[2] - first[0] + 0.1
