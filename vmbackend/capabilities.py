"""The capabilities of a host's hypervisor: what newer releases of libvirt and QEMU can do, as they say themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """The answers of one host. Versions are empty while they are unknown.

    Nothing uses the three flags yet: machines run alike with and without.
    """

    qemu: str = ""
    libvirt: str = ""
    accelerator: str = ""  # kvm, or tcg: emulation
    mapped_ram: bool = False  # QEMU writes each page of memory to a fixed place of the file
    sparse_images: bool = False  # libvirt saves memory in that way
    mapped_templates: bool = False  # QEMU can run on a file's memory without copying or changing it


@dataclass(frozen=True, slots=True)
class Flag:
    """A capability in words: its name, and what a host with and without it can do."""

    field: str
    name: str
    there: str
    lacking: str


FLAGS = (
    Flag(
        "mapped_ram",
        "mapped-ram",
        "QEMU can write each page of memory to a fixed place of the file",
        "QEMU writes memory as a stream, which a load reads from end to end",
    ),
    Flag(
        "sparse_images",
        "sparse save images",
        "libvirt can save memory in files with holes",
        "libvirt saves memory as a stream only",
    ),
    Flag(
        "mapped_templates",
        "mapped templates",
        "QEMU can run on a template's file without a copy of it",
        "QEMU copies a template's memory into each machine",
    ),
)
