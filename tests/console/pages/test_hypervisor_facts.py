"""The hypervisor on the page of a host."""

from __future__ import annotations

from dataclasses import asdict

from console.panels.hosts import hypervisor_facts
from vmbackend.capabilities import HostCapabilities
from vmbackend.models import Host


def test_versions_and_each_capability_are_said_in_words() -> None:
    reported = HostCapabilities("7.2.22", "9.0.0", "tcg", mapped_ram=True)
    facts = dict(hypervisor_facts(Host(name="a", capabilities=asdict(reported))))
    assert (facts["QEMU"], facts["libvirt"], facts["Accelerator"]) == ("7.2.22", "9.0.0", "tcg")
    assert facts["mapped-ram"].startswith("yes: ")
    assert facts["sparse save images"].startswith("no: ")


def test_a_host_that_reported_nothing_is_unknown() -> None:
    assert {text for _, text in hypervisor_facts(Host(name="a"))} == {"-"}
