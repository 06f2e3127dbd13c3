"""The domain XML of a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from vmbackend.libvirt.domainxml import (
    TRANSLATION_CACHE_MB,
    DomainDefinition,
    domain_xml,
    machine_id_from_xml,
    vcpus_for,
)

DEFINITION = DomainDefinition(
    name="mvm-abcdef-m1",
    uuid="86b7f8b3-b6c9-53ae-85ab-1e067afbd70d",
    instance="abcdef",
    machine_id="m1",
    domain_type="qemu",
    vcpus=2,
    memory_mb=512,
    firmware=Path("/f/qboot.rom"),
    kernel=Path("/k/vmlinux"),
    initrd=Path("/k/initrd"),
    kernel_args="console=ttyS0 quiet",
    fw_cfg_name="opt/x",
    fw_cfg_file=Path("/m/m1/config"),
    base_disk=Path("/i/base"),
    data_layers=(("raw", Path("/m/m1/data.raw")),),
    direct_io=True,
    bridge="mvbabcdef",
    tap="mvtabcdef5",
    mac="02:6d:0a:00:00:05",
    agent_socket=Path("/m/m1/agent"),
    events_pipe=Path("/m/m1/events"),
    requests_pipe=Path("/m/m1/requests"),
    console_pipe=Path("/m/m1/console"),
    label="+1879048197:+1879048197",
)


def _parsed(**changes):
    return ET.fromstring(domain_xml(replace(DEFINITION, **changes)))


def test_disks_are_identified_by_serial_and_only_the_base_is_read_only():
    disks = {d.findtext("serial"): d for d in _parsed().findall("devices/disk")}
    assert set(disks) == {"base", "data"}
    assert disks["base"].find("readonly") is not None
    assert disks["data"].find("readonly") is None
    assert disks["data"].find("driver").get("cache") == "none"


def test_a_file_system_without_direct_io_gets_the_page_cache():
    disks = {d.findtext("serial"): d for d in _parsed(direct_io=False).findall("devices/disk")}
    assert disks["data"].find("driver").get("cache") == "writeback"


def test_the_hypervisor_never_restarts_a_machine():
    domain = _parsed()
    assert {domain.findtext(f"on_{what}") for what in ("poweroff", "reboot", "crash")} == {"destroy"}


def test_a_guest_cannot_suspend_itself():
    assert {element.tag: element.get("enabled") for element in _parsed().find("pm")} == {
        "suspend-to-mem": "no",
        "suspend-to-disk": "no",
    }


def test_the_bridge_port_is_isolated_from_the_start():
    interface = _parsed().find("devices/interface")
    assert interface.find("port").get("isolated") == "yes"
    assert interface.find("target").get("dev") == "mvtabcdef5"
    assert interface.find("mac").get("address") == "02:6d:0a:00:00:05"


def test_markup_in_a_path_is_escaped():
    path = Path('/m/<disk type="x">&\'/base')
    domain = _parsed(base_disk=path)
    assert domain.find("devices/disk/source").get("file") == str(path)
    assert len(domain.findall("devices/disk")) == 2


def test_a_machine_belongs_to_its_instance_only():
    xml = domain_xml(DEFINITION)
    assert machine_id_from_xml(xml, "abcdef") == "m1"
    assert machine_id_from_xml(xml, "000000") is None
    assert machine_id_from_xml("<domain><name>mvm-abcdef-m1</name></domain>", "abcdef") is None


def test_each_boot_device_has_its_own_pci_slot():
    addresses = [
        (a.get("bus"), a.get("slot"), a.get("function")) for a in _parsed().findall("devices/*/address[@type='pci']")
    ]
    assert len(addresses) == len(set(addresses)) == 6
    assert not _parsed().findall("devices/controller[@model='pcie-root-port']")


def test_firmware_is_the_configured_file_or_the_hypervisors_default():
    loader = _parsed().find("os/loader")
    assert (loader.text, loader.get("type"), loader.get("readonly")) == ("/f/qboot.rom", "rom", "yes")
    assert _parsed(firmware=None).find("os/loader") is None


@pytest.mark.parametrize(("cpus", "whole"), [(0.1, 1), (1.0, 1), (1.5, 2), (4.0, 4)])
def test_fractions_of_a_cpu_are_rounded_up(cpus, whole):
    assert vcpus_for(cpus) == whole


def test_the_process_runs_as_the_machines_own_user_and_its_files_keep_their_owners():
    (label,) = _parsed().findall("seclabel")
    assert (label.get("model"), label.get("type"), label.get("relabel")) == ("dac", "static", "no")
    assert label.findtext("label") == "+1879048197:+1879048197"
    assert _parsed(label=None).find("seclabel") is None


def test_a_core_dump_does_not_contain_the_guests_memory():
    assert _parsed().find("memory").get("dumpCore") == "off"


def test_the_cache_of_emulation_is_limited_and_a_machine_with_kvm_has_none():
    cache = _parsed().find("features/tcg/tb-cache")
    assert (cache.get("unit"), cache.text) == ("MiB", str(TRANSLATION_CACHE_MB))
    assert _parsed(domain_type="kvm").find("features/tcg") is None


def test_there_is_no_display_and_no_tpm():
    kinds = {device.tag for device in _parsed().findall("devices/*")}
    assert not kinds & {"graphics", "video", "tpm", "sound", "hostdev"}
