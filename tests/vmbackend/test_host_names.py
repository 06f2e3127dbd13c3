"""A host name is one machine's at a time: two machines of one name would carry out each other's operations."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from supervise import database
from tests.fakehost import FakeHost
from tests.threads import run_at_once
from tests.workspaces.rows import end_leases, make_host, renew_leases
from vmbackend import services
from vmbackend.driver import BootTemplate, Capacity
from vmbackend.errors import BackendUnavailable, HostNameHeld
from vmbackend.fake.store import FakeStore
from vmbackend.host_claim import BOOT_ID, host_claim
from vmbackend.host_states import LEASE_FOR
from vmbackend.models import Host
from workspaces.host import runtime

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def capacity(tmp_path: Path) -> Capacity:
    return FakeStore(tmp_path / "driver").capacity()


def report(claim: str, capacity: Capacity, subnet: str = "10.200.0.0/20", address: str = "") -> None:
    """Report as a machine that starts with the name."""
    known = {"host_id": services.find_host_id(name="one", claim=claim), "name": "one", "claim": claim}
    services.record_host_seen(**known, subnet=subnet, capacity=capacity, address=address)


def test_the_control_machines_host_stores_its_own_key(capacity: Capacity) -> None:
    known = {"host_id": services.find_host_id(name="one", claim="a"), "name": "one", "claim": "a"}
    for key in ("ssh-ed25519 AAAA", "ssh-ed25519 BBBB"):
        services.record_host_seen(**known, subnet="10.200.0.0/20", capacity=capacity, transfer_key=key)
        assert Host.objects.get().transfer_key == key


def test_a_machine_has_a_claim_of_its_own_for_each_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    claim = host_claim(first)
    assert host_claim(first) == claim
    assert host_claim(second) != claim
    (second / "host.id").write_text((first / "host.id").read_text())
    assert host_claim(second) == claim
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    monkeypatch.setattr("vmbackend.host_claim.BOOT_ID", boot)
    assert (host_claim(first) != claim, host_claim(first).split(" ")[0]) == (True, claim.split(" ")[0])
    assert BOOT_ID.exists()
    # A power failure may leave an empty file.
    (first / "host.id").write_text("")
    assert len(host_claim(first).split(" ")[0]) == 16


def test_a_name_that_another_machine_has_is_refused_until_that_one_is_gone(capacity: Capacity) -> None:
    report("a", capacity)
    report("a", capacity)
    with pytest.raises(HostNameHeld, match="PLATFORM_HOST_NAME"):
        report("b", capacity, subnet="10.99.0.0/20")
    with pytest.raises(HostNameHeld, match="PLATFORM_HOST_NAME"):
        services.record_host_problem(host_id=Host.objects.get().pk, name="one", claim="b", problem="of the other")
    row = Host.objects.get()
    assert (row.claim, row.subnet, row.problem) == ("a", "10.200.0.0/20", "")
    end_leases()
    report("b", capacity)
    with pytest.raises(HostNameHeld):
        report("a", capacity)
    assert Host.objects.get().claim == "b"


def test_a_host_has_the_address_that_it_reports_last(capacity: Capacity) -> None:
    report("a", capacity)
    assert Host.objects.get().address == ""
    for address in ("192.0.2.7", "192.0.2.8", ""):
        report("a", capacity, address=address)
        assert Host.objects.get().address == address


def test_what_a_clock_that_was_ahead_has_written_holds_no_name(
    capacity: Capacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of this machine before it was booted, which has another claim since."""
    make_host(settings.ENV.host_name)
    name = settings.ENV.host_name
    Host.objects.update(claim="before the boot", lease_until=timezone.now() + timedelta(hours=1))
    monkeypatch.setattr(database.time, "sleep", lambda seconds: pytest.fail("the start waits for the clock"))
    database._require_host_name()
    services.require_host_name(name=name, claim="since")
    known = {"host_id": Host.objects.get().pk, "name": name, "claim": "since"}
    services.record_host_seen(**known, subnet="10.200.0.0/20", capacity=capacity)
    row = Host.objects.get()
    assert (row.claim, row.answers) == ("since", True)
    assert row.lease_until is not None
    assert row.lease_until < timezone.now() + timedelta(minutes=1)


@pytest.mark.parametrize("off_by", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_machine_whose_clock_is_wrong_does_not_take_a_name(
    capacity: Capacity, monkeypatch: pytest.MonkeyPatch, off_by: timedelta
) -> None:
    report("a", capacity)
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + off_by)
    with pytest.raises(HostNameHeld):
        report("b", capacity)
    monkeypatch.undo()
    report("a", capacity)


def test_a_row_of_an_earlier_version_is_taken_over(capacity: Capacity) -> None:
    Host.objects.create(name="one", subnet="10.200.0.0/20", lease_until=timezone.now() + LEASE_FOR)
    report("a", capacity)
    assert Host.objects.get().claim == "a"


def test_of_machines_that_claim_a_name_at_once_one_gets_it(capacity: Capacity) -> None:
    outcomes = run_at_once(6, lambda number: report(f"machine {number}", capacity))
    assert outcomes.count("done") == 1
    assert sum("HostNameHeld" in outcome for outcome in outcomes) == 5


def test_a_killed_vmhost_starts_again_at_once_and_that_of_another_machine_does_not(
    vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleQueue[tuple[int, int]]()
    monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(os, "kill", lambda *args: ended.put(args))
    vmhost.restart()
    Host.objects.update(claim="of another machine")
    renew_leases()
    # As after it stood still for a while, and the other one took its name.
    assert ended.get(timeout=60) == (os.getpid(), signal.SIGTERM)
    assert Host.objects.get().claim == "of another machine"
    with pytest.raises(HostNameHeld, match="Another machine"):
        vmhost.restart()
    Host.objects.update(claim=vmhost.runtime.claim)
    vmhost.restart()


def test_a_machine_without_its_hypervisor_ends_too_where_another_one_has_its_name(
    vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would keep the claims of operations that the other one is to carry out."""
    ended = SimpleQueue[tuple[int, int]]()
    monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(os, "kill", lambda *args: ended.put(args))
    vmhost.restart()
    vmhost.driver.fail_next("state", BackendUnavailable("libvirt is away"), times=1000)
    Host.objects.update(claim="of another machine", problem="")
    renew_leases()
    assert ended.get(timeout=60) == (os.getpid(), signal.SIGTERM)
    row = Host.objects.get()
    assert (row.claim, row.problem) == ("of another machine", "")


@pytest.fixture
def other() -> None:
    """Another machine of this host's name, which has just reported."""
    make_host(settings.ENV.host_name)
    Host.objects.update(claim="of another machine")


def test_a_start_is_refused_while_another_machine_reports(
    other: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            renew_leases()

    monkeypatch.setattr(database.time, "sleep", sleep)
    with pytest.raises(SystemExit) as ended:
        database._require_host_name()
    assert (ended.value.code, len(sleeps)) == (database.HOST_NAME_HELD, 3)
    assert f"as the host {settings.ENV.host_name!r}" in capsys.readouterr().err


def test_a_start_waits_for_a_machine_that_reports_no_more(other: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As this machine before a boot that took less than its time."""
    sleeps: list[float] = []

    def sleep(seconds: float) -> Any:
        sleeps.append(seconds)
        if len(sleeps) == 5:
            end_leases()

    monkeypatch.setattr(database.time, "sleep", sleep)
    database._require_host_name()
    assert len(sleeps) == 5


def test_staff_see_the_templates_that_a_host_reports(staff: Client, capacity: Capacity) -> None:
    template = BootTemplate(1, 512, 53 << 20, time.time() - 3700, loads=12, failures=1)
    report("since", replace(capacity, templates=(template,)))
    shown = staff.get(f"/admin/vmbackend/host/{Host.objects.get().pk}/change/").content.decode()
    for words in ("1 CPUs and 512 MiB", "53.0 MiB", "1 h", "loaded 12 times, 1 failed"):
        assert words in shown
