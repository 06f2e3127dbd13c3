"""Rendering of a machine's libvirt domain XML. No decisions and no I/O.

Devices are on the root bus at fixed addresses: a pcie-root-port for each would add a bridge to enumerate, and a spare
root port costs every boot 15 ms under emulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree as ET

NAMESPACE = "urn:microvm-workspaces:machine"
AGENT_PORT = "org.qemu.guest_agent.0"
EVENTS_PORT = "org.microvm.events.0"
REQUESTS_PORT = "org.microvm.requests.0"

# The cache of translated code, under emulation.
TRANSLATION_CACHE_MB = 512

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
ET.register_namespace("mvm", NAMESPACE)
ET.register_namespace("qemu", QEMU)


@dataclass(frozen=True, slots=True)
class DomainDefinition:
    """The values of one machine's XML."""

    name: str
    uuid: str
    instance: str
    machine_id: str
    domain_type: Literal["kvm", "qemu", "test"]
    vcpus: int
    memory_mb: int
    firmware: Path | None  # None: the hypervisor's own
    kernel: Path
    initrd: Path
    kernel_args: str
    fw_cfg_name: str
    fw_cfg_file: Path
    base_disk: Path
    data_layers: tuple[tuple[str, Path], ...]  # format and file, the lowest first; the last is written
    direct_io: bool
    bridge: str
    tap: str
    mac: str
    agent_socket: Path
    events_pipe: Path
    requests_pipe: Path
    console_pipe: Path
    label: str | None  # `+uid:+gid` of its process; None: that of the hypervisor's configuration


def vcpus_for(cpus: float) -> int:
    """Return the number of virtual CPUs for a fractional number of CPUs; the fraction is enforced by a quota."""
    return max(1, math.ceil(cpus))


def domain_xml(d: DomainDefinition) -> str:
    """Return the domain's XML, with all values escaped."""
    # libvirt's mock hypervisor supports Xen's machine only, and neither channels nor fw_cfg.
    domain = ET.Element("domain", type=d.domain_type)
    _text(domain, "name", d.name)
    _text(domain, "uuid", d.uuid)
    metadata = ET.SubElement(domain, "metadata")
    ET.SubElement(metadata, f"{{{NAMESPACE}}}machine", instance=d.instance, id=d.machine_id)
    # A core dump, should the host write one, does not contain the guest's memory.
    _text(domain, "memory", str(d.memory_mb), unit="MiB", dumpCore="off")
    _text(domain, "vcpu", str(d.vcpus), placement="static")
    _boot(domain, d)
    _behaviour(domain, d)
    if d.domain_type != "test":
        _devices(domain, d)
        if d.label is not None:
            add_label(domain, d.label)
        _capabilities(domain)
    return ET.tostring(domain, encoding="unicode")


def _capabilities(domain: ET.Element) -> None:
    """Let libvirt read the guest's CPU by its feature words instead of querying each of 400 properties.

    The queries take 270 ms of every start; their results only matter for migration.
    """
    capabilities = ET.SubElement(domain, f"{{{QEMU}}}capabilities")
    ET.SubElement(capabilities, f"{{{QEMU}}}del", capability="cpu-unavailable-features")


def add_label(domain: ET.Element, label: str) -> None:
    """Run the domain's process as this user. libvirt changes the owner of no file: the driver has done it."""
    element = ET.SubElement(domain, "seclabel", type="static", model="dac", relabel="no")
    _text(element, "label", label)


def add_lower_layers(disk: ET.Element, lower: Sequence[tuple[str, str]]) -> None:
    """Add format and file of each lower layer, the nearest first, and that the last one has none.

    So nothing reads in a file's header, which a machine's process may have written, where the next layer is.
    """
    above = disk
    for kind, path in lower:
        above = ET.SubElement(above, "backingStore", type="file")
        ET.SubElement(above, "format", type=kind)
        ET.SubElement(above, "source", file=path)
    ET.SubElement(above, "backingStore")


def machine_id_from_xml(xml: str, instance: str) -> str | None:
    """Return the machine id in a domain's XML; None for a domain of another instance."""
    element = ET.fromstring(xml).find(f"metadata/{{{NAMESPACE}}}machine")  # noqa: S314 - libvirt's own output
    if element is None or element.get("instance") != instance:
        return None
    return element.get("id")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _boot(domain: ET.Element, d: DomainDefinition) -> None:
    os_element = ET.SubElement(domain, "os")
    if d.domain_type == "test":
        _text(os_element, "type", "hvm")
        return
    _text(os_element, "type", "hvm", arch="x86_64", machine="q35")
    if d.firmware is not None:
        _text(os_element, "loader", str(d.firmware), readonly="yes", type="rom")
    _text(os_element, "kernel", str(d.kernel))
    _text(os_element, "initrd", str(d.initrd))
    _text(os_element, "cmdline", d.kernel_args)
    sysinfo = ET.SubElement(domain, "sysinfo", type="fwcfg")
    ET.SubElement(sysinfo, "entry", name=d.fw_cfg_name, file=str(d.fw_cfg_file))


def _behaviour(domain: ET.Element, d: DomainDefinition) -> None:
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    if d.domain_type == "qemu":
        # Bounds what emulation needs besides the guest's memory; by default an eighth of the host's, at most 1 GiB.
        _text(ET.SubElement(features, "tcg"), "tb-cache", str(TRANSLATION_CACHE_MB), unit="MiB")
    if d.domain_type == "kvm":
        # Migratable: features that cannot be migrated (an invariant TSC) prevent QEMU from saving the machine's
        # memory, too.
        ET.SubElement(domain, "cpu", mode="host-passthrough", migratable="on")
    elif d.domain_type == "qemu":
        ET.SubElement(domain, "cpu", mode="maximum")
    clock = ET.SubElement(domain, "clock", offset="utc")
    ET.SubElement(clock, "timer", name="hpet", present="no")
    if d.domain_type != "test":
        # A guest that suspended itself would be neither running nor paused: nothing but its end resumes it.
        pm = ET.SubElement(domain, "pm")
        for what in ("suspend-to-mem", "suspend-to-disk"):
            ET.SubElement(pm, what, enabled="no")
    # Restarts are the platform's decision, never the hypervisor's.
    for what in ("on_poweroff", "on_reboot", "on_crash"):
        _text(domain, what, "destroy")


def _devices(domain: ET.Element, d: DomainDefinition) -> None:
    devices = ET.SubElement(domain, "devices")
    _controllers(devices)
    _disk(devices, (("raw", d.base_disk),), "vda", "base", {"cache": "writeback", "io": "threads"}, slot=2)
    cache = "none" if d.direct_io else "writeback"
    options = {"cache": cache, "io": "threads", "discard": "unmap", "detect_zeroes": "unmap"}
    _disk(devices, d.data_layers, "vdb", "data", options, slot=3)
    _interface(devices, d)
    _channels(devices, d)
    rng = ET.SubElement(devices, "rng", model="virtio")
    ET.SubElement(rng, "rate", bytes="65536", period="1000")
    _text(rng, "backend", "/dev/urandom", model="random")
    _pci(rng, 6)
    balloon = ET.SubElement(devices, "memballoon", model="virtio", autodeflate="on", freePageReporting="on")
    ET.SubElement(balloon, "stats", period="2")
    _pci(balloon, 7)


def _pci(device: ET.Element, slot: int) -> None:
    place = {"type": "pci", "domain": "0x0000", "bus": "0x00", "slot": f"0x{slot:02x}", "function": "0x0"}
    ET.SubElement(device, "address", place)


def _controllers(devices: ET.Element) -> None:
    ET.SubElement(devices, "controller", type="usb", model="none")
    serial = ET.SubElement(devices, "controller", type="virtio-serial", index="0")
    _pci(serial, 5)


def _disk(
    devices: ET.Element,
    layers: tuple[tuple[str, Path], ...],
    target: str,
    serial: str,
    options: dict[str, str],
    *,
    slot: int,
) -> None:
    *lower, (top_format, top) = layers
    disk = ET.SubElement(devices, "disk", type="file", device="disk")
    ET.SubElement(disk, "driver", {"name": "qemu", "type": top_format, **options})
    ET.SubElement(disk, "source", file=str(top))
    if lower:
        add_lower_layers(disk, [(kind, str(path)) for kind, path in reversed(lower)])
    ET.SubElement(disk, "target", dev=target, bus="virtio")
    if serial == "base":
        ET.SubElement(disk, "readonly")
    _text(disk, "serial", serial)
    _pci(disk, slot)


def _interface(devices: ET.Element, d: DomainDefinition) -> None:
    interface = ET.SubElement(devices, "interface", type="bridge")
    ET.SubElement(interface, "mac", address=d.mac)
    ET.SubElement(interface, "source", bridge=d.bridge)
    ET.SubElement(interface, "target", dev=d.tap)
    ET.SubElement(interface, "model", type="virtio")
    # libvirt isolates the port before the tap is up, so guests never see each other.
    ET.SubElement(interface, "port", isolated="yes")
    ET.SubElement(interface, "rom", enabled="no")
    _pci(interface, 4)


def _channels(devices: ET.Element, d: DomainDefinition) -> None:
    console = ET.SubElement(devices, "serial", type="pipe")
    ET.SubElement(console, "source", path=str(d.console_pipe))
    ET.SubElement(console, "target", port="0")
    agent = ET.SubElement(devices, "channel", type="unix")
    ET.SubElement(agent, "source", mode="bind", path=str(d.agent_socket))
    ET.SubElement(agent, "target", type="virtio", name=AGENT_PORT)
    ET.SubElement(agent, "address", type="virtio-serial", controller="0", bus="0", port="1")
    for number, (name, pipe) in enumerate(((EVENTS_PORT, d.events_pipe), (REQUESTS_PORT, d.requests_pipe)), 2):
        channel = ET.SubElement(devices, "channel", type="pipe")
        ET.SubElement(channel, "source", path=str(pipe))
        ET.SubElement(channel, "target", type="virtio", name=name)
        ET.SubElement(channel, "address", type="virtio-serial", controller="0", bus="0", port=str(number))
