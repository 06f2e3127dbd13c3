"""The CPU quota of real machines."""

from __future__ import annotations

import pytest

from vmbackend.errors import DeadlineExceeded

from .conftest import Harness

pytestmark = pytest.mark.vm


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def quotas(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the quotas that are applied: not every host's cgroups support them."""
    from vmbackend.libvirt import domain

    applied: list[float] = []

    def apply(target: object, cpus: float) -> bool:
        applied.append(cpus)
        return True

    monkeypatch.setattr(domain, "set_cpu_quota", apply)
    return applied


def test_a_guest_that_never_becomes_ready_has_its_quota(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmbackend.libvirt import driver

    applied = quotas(harness, monkeypatch)
    monkeypatch.setattr(driver, "_BOOT_SECONDS", 0.1)
    spec = harness.spec(cpus=0.5)
    harness.driver.prepare(spec)
    harness.driver.start(spec.id)
    harness.driver.pause(spec.id)  # so it never reports that it is ready
    assert applied == []
    with pytest.raises(DeadlineExceeded):
        harness.driver.wait_ready(spec.id, 0.5)
    assert applied == [0.5]
    harness.driver.resume(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert applied[-1] == 0.5
