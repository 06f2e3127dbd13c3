"""Copies of a guest whose clock stood a day ago: right at once, and no program makes up for the day.

A certificate of today is accepted by them, which the guest that they were made from did not do.

The host's clock cannot be set back in a test, so it is the guest's that is, before it is saved: what is loaded then is
what a day would have made of it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import templates
from vmbackend.libvirt.save_file import read_save_file
from vmbackend.libvirt.store import FOLDER
from vmbackend.libvirt.template_making import TemplateMaker
from vmbackend.power import StartedFrom

from .conftest import Harness
from .program_images import image_with
from .snapshot_scenes import load_fork, run
from .test_sleep_contract import CLOCK_ERROR, read_clocks

pytestmark = [pytest.mark.vm, pytest.mark.campaign]
DAY = 86400
CRON = """
mkdir -p /cron && echo '* * * * * date +%s >> /ran' > /cron/root
crond -f -c /cron < /dev/null > /dev/null 2>&1 &
"""
# It looks once a minute.
CRON_SECONDS = 150
SET_BACK = f"date -s @$(($(date +%s) - {DAY}))"
CERTIFICATE = "openssl req -x509 -newkey ed25519 -nodes -subj /CN=test -days 2 -keyout /dev/null"
VERIFY = "openssl verify -CAfile /dev/shm/issued /dev/shm/issued 2>&1 || :"


def issue_certificate() -> str:
    """One that is valid from now on."""
    return subprocess.run(CERTIFICATE.split(), check=True, capture_output=True, text=True).stdout


def verified(harness: Harness, address: GuestAddress, certificate: str) -> str:
    """Return the words of a guest's program on a certificate."""
    return run(harness, address, f"echo '{certificate}' > /dev/shm/issued\n{VERIFY}")


def uptime(harness: Harness, address: GuestAddress) -> float:
    """The clock of timers that do not name a time of day."""
    return float(run(harness, address, "cat /proc/uptime").split()[0])


def require_right_clock(harness: Harness, address: GuestAddress) -> None:
    before, clock, after = read_clocks(harness, address)
    assert before - CLOCK_ERROR < clock < after + CLOCK_ERROR


def runs_of_cron(harness: Harness, address: GuestAddress) -> list[int]:
    return [int(line) for line in run(harness, address, "cat /ran 2>/dev/null || :").split()]


def await_run_of_cron(harness: Harness, address: GuestAddress) -> list[int]:
    deadline = time.monotonic() + 4 * CRON_SECONDS
    while not (runs := runs_of_cron(harness, address)):
        assert time.monotonic() < deadline, "cron runs nothing"
        time.sleep(1)
    return runs


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Its machines have a program that looks at certificates."""
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    made = factory.make_harness(tmp_path, image_with(Path("/usr/bin/openssl")))
    try:
        yield made
    finally:
        made.close()


def go_back(harness: Harness, address: GuestAddress, snapshot_id: str) -> None:
    harness.driver.destroy(address.machine_id)
    harness.driver.take_disk(address.machine_id, snapshot_id)
    assert harness.driver.load(address.machine_id, snapshot_id) is StartedFrom.SNAPSHOT
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)


def test_copies_of_a_guest_of_yesterday_have_todays_time_and_run_no_jobs_of_the_day_between(harness: Harness) -> None:
    """A fork, and the machine itself when it goes back."""
    parent = harness.running_machine()
    run(harness, parent, SET_BACK)
    run(harness, parent, CRON)
    certificate = issue_certificate()
    assert "not yet valid" in verified(harness, parent, certificate)
    harness.driver.snapshot(parent.machine_id, "s1")
    ran = uptime(harness, parent)
    fork = load_fork(harness, "s1")
    require_right_clock(harness, fork)
    go_back(harness, parent, "s1")
    require_right_clock(harness, parent)
    began = time.time()
    for address in (fork, parent):
        assert verified(harness, address, certificate) == "/dev/shm/issued: OK"
        assert uptime(harness, address) < ran + DAY / 2
        runs = await_run_of_cron(harness, address)
        minutes = (time.time() - began) / 60
        assert len(runs) <= minutes + 1, runs
        assert min(runs) > began - 60, "no run has the time of yesterday"


@pytest.fixture
def with_old_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """Its templates are made of guests whose hardware says that it is yesterday; see `harness`."""
    define = TemplateMaker._definition

    def of_yesterday(self: TemplateMaker, definition: str) -> str:
        made = define(self, definition)
        assert '<clock offset="utc"' in made
        return made.replace('<clock offset="utc"', f'<clock offset="variable" adjustment="-{DAY}" basis="utc"')

    monkeypatch.setattr(TemplateMaker, "_definition", of_yesterday)
    monkeypatch.setattr(templates, "_WAIT_SECONDS", 0.0)  # the host is busy with tests
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    made = factory.make_harness(tmp_path, image_with(Path("/usr/bin/openssl")), boot_templates=1)
    try:
        yield made
    finally:
        made.close()


def test_a_machine_from_a_template_of_yesterday_has_todays_time(with_old_template: Harness) -> None:
    harness = with_old_template
    harness.running_machine()
    store = harness.settings.machines_dir / FOLDER  # type: ignore[attr-defined]
    deadline = time.monotonic() + harness.boot_seconds
    while not (made := list(store.glob("boot_*"))):
        assert time.monotonic() < deadline, "no template was made"
        time.sleep(0.1)
    description = read_save_file(made[0] / "memory").xml
    assert "variable" in description
    certificate = issue_certificate()
    spec = harness.spec()
    identity = harness.driver.prepare(spec)
    assert harness.driver.start(spec.id) is StartedFrom.TEMPLATE
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    require_right_clock(harness, address)
    assert verified(harness, address, certificate) == "/dev/shm/issued: OK"
