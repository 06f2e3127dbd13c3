"""How the power button is pressed: past the guest's agent, which a hostile guest lets hang."""

from __future__ import annotations

import libvirt
import pytest

from vmbackend.errors import BackendError
from vmbackend.libvirt.domain import press_power_button


class Domain:
    """A domain that refuses a choice of the way with `code`."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code
        self.calls: list[int | None] = []

    def shutdownFlags(self, flags: int) -> None:
        self.calls.append(flags)
        if self.code is not None:
            error = libvirt.libvirtError("refused")
            error.err = (self.code, libvirt.VIR_FROM_QEMU, "refused", 0, "", "", "", 0, 0)
            raise error

    def shutdown(self) -> None:
        self.calls.append(None)


def test_the_agent_is_not_asked() -> None:
    domain = Domain()
    press_power_button(domain)
    assert domain.calls == [libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN]


def test_a_hypervisor_that_knows_one_way_only_is_asked_for_that() -> None:
    domain = Domain(libvirt.VIR_ERR_INVALID_ARG)
    press_power_button(domain)
    assert domain.calls[-1] is None


def test_other_refusals_are_raised() -> None:
    domain = Domain(libvirt.VIR_ERR_INTERNAL_ERROR)
    with pytest.raises(BackendError):
        press_power_button(domain)
    assert len(domain.calls) == 1
