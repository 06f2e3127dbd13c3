"""The identity in a machine's definition: its names, files, address and user. All else decides about memory.

Two definitions that are the same without these places have the same devices, so memory saved under one can be loaded
under the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from vmbackend.libvirt.domainxml import NAMESPACE, add_lower_layers

# Measured anew for each definition, within parts of a million.
_MEASURED = re.compile(r" tsc_early_khz=\d+")
_LABEL = "seclabel[@model='dac']"


@dataclass(frozen=True, slots=True)
class Place:
    """One value of a definition: an attribute of an element, or its text. `kind` names it; equal ones are in order."""

    kind: str
    element: ET.Element
    attribute: str = ""

    def read(self) -> str:
        return (self.element.get(self.attribute) if self.attribute else self.element.text) or ""

    def write(self, value: str) -> None:
        if self.attribute:
            self.element.set(self.attribute, value)
        else:
            self.element.text = value


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """The layers of a machine's disk but for the file of the top one: the guest cannot see whether there are any."""

    disk: ET.Element
    kind: str = "chain"

    def read(self) -> str:
        """Return the top's format, then format and file of each lower layer, the nearest first, as JSON."""
        driver = self.disk.find("driver")
        found, above = [driver.get("type", "raw") if driver is not None else "raw"], self.disk
        while (lower := above.find("backingStore")) is not None and lower.find("source") is not None:
            found += [_attribute(lower, "format", "type"), _attribute(lower, "source", "file")]
            above = lower
        return json.dumps(found)

    def write(self, value: str) -> None:
        top_format, *lower = json.loads(value or '["raw"]')
        driver = self.disk.find("driver")
        if driver is not None:
            driver.set("type", top_format)
        for former in self.disk.findall("backingStore"):
            self.disk.remove(former)
        if lower:
            add_lower_layers(self.disk, list(zip(lower[::2], lower[1::2], strict=True)))


def encode_chain(top_format: str, lower: Sequence[tuple[str, str]]) -> str:
    """Return the value of a `ChainPlace`. `lower`: format and file of each, the nearest first."""
    return json.dumps([top_format, *(word for layer in lower for word in layer)])


def identity_values(xml: str) -> list[tuple[str, str]]:
    """Return kind and value of each place of a definition, in its order."""
    return [(place.kind, place.read()) for place in _places(_parse(xml))]


def shape_of(xml: str) -> str:
    """Return a definition without its places: equal for machines whose memory has the same shape."""
    domain = _parse(xml)
    for place in _places(domain):
        place.write("")
    for arguments in domain.findall("os/cmdline"):
        arguments.text = _MEASURED.sub("", arguments.text or "")
    ET.indent(domain)
    return ET.tostring(domain, encoding="unicode")


def size_of(xml: str) -> tuple[int, int]:
    """Return virtual CPUs and MiB of memory of a definition as libvirt writes it."""
    domain = _parse(xml)
    return int(domain.findtext("vcpu") or 0), int(domain.findtext("memory") or 0) >> 10


def give_identity(xml: str, identity: list[tuple[str, str]]) -> str:
    """Return the definition `xml` with the values of another one. Raises ValueError if their places differ."""
    domain = _parse(xml)
    places = list(_places(domain))
    if [place.kind for place in places] != [kind for kind, _ in identity]:
        raise ValueError("the definitions have different places")
    for place, (_, value) in zip(places, identity, strict=True):
        place.write(value)
    return ET.tostring(domain, encoding="unicode")


def with_machine(xml: str, machine: str) -> str:
    """Return the definition with this version of its type of machine: a newer one has other devices."""
    domain = _parse(xml)
    for kind in domain.findall("os/type"):
        kind.set("machine", machine)
    return ET.tostring(domain, encoding="unicode")


def rename_values(xml: str, values: Mapping[str, str]) -> str:
    """Return the definition with new values of the places of these kinds."""
    return give_identity(xml, [(kind, values.get(kind, value)) for kind, value in identity_values(xml)])


def has_values(xml: str, values: Mapping[str, str]) -> bool:
    """Return whether each place of these kinds has this value."""
    return all(values.get(kind, value) == value for kind, value in identity_values(xml))


def _parse(xml: str) -> ET.Element:
    domain = ET.fromstring(xml)  # noqa: S314 - libvirt's own output
    domain.attrib.pop("id", None)  # of a process
    # libvirt adds the label as QEMU got it to the definition of a process.
    for label in domain.findall(_LABEL):
        for other in label.findall("imagelabel"):
            label.remove(other)
    return domain


def _attribute(parent: ET.Element, tag: str, name: str) -> str:
    found = parent.find(tag)
    return found.get(name, "") if found is not None else ""


def _places(domain: ET.Element) -> Iterator[Place | ChainPlace]:
    for kind, path, attribute in (
        ("name", "name", ""),
        ("uuid", "uuid", ""),
        ("machine", f"metadata/{{{NAMESPACE}}}machine", "id"),
        ("label", f"{_LABEL}/label", ""),
        ("config", "sysinfo/entry", "file"),
        ("mac", "devices/interface/mac", "address"),
        ("tap", "devices/interface/target", "dev"),
    ):
        yield from (Place(kind, element, attribute) for element in domain.findall(path))
    for disk in domain.findall("devices/disk"):
        kind = "base" if disk.find("readonly") is not None else "data"
        yield from (Place(kind, source, "file") for source in disk.findall("source"))
        if kind == "data":
            yield ChainPlace(disk)
    for device in domain.findall("devices/*"):
        yield from (Place(_channel(device), source, "path") for source in device.findall("source[@path]"))


def _channel(device: ET.Element) -> str:
    target = device.find("target")
    name = target.get("name", "") if target is not None else ""
    return f"{device.tag} {name}".strip()
