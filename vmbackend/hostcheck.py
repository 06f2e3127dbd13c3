"""What a host needs to run machines: each need is looked at, and told with the command that mends it.

Looks only; what it makes to find out (a bridge, a machine) is gone when it returns. Imports no Django.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmbackend.errors import BackendError

# What the smallest useful host has beside its machines.
MEMORY_MB = 1024
DISK_MB = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One need. `needed` False: the platform works without it, worse. `mend` is empty where there is
    nothing to do.
    """

    name: str
    found: bool
    sentence: str
    mend: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Where:
    """Which files and addresses of the instance are looked at."""

    root: Path  # of the project
    kit_dir: Path
    state: Path
    libvirt_uri: str


def look(where: Where) -> Iterator[Finding]:
    """Every finding about the host, cheap ones first. A look that fails is a finding, never an error."""
    looks: list[Callable[[Where], Finding]] = [
        *(_root, _python, _packages, _libvirt, _nftables, _dnsmasq, _bridge, _tun, _memory, _disk),
        *(_kit, _kernel, _kvm),
    ]
    for one in looks:
        try:
            yield one(where)
        except (OSError, subprocess.SubprocessError, BackendError, ImportError) as error:
            needed = one not in (_kernel, _kvm)  # emulation and Debian's kernel serve as well
            yield Finding(one.__name__.strip("_"), False, f"could not be looked at: {error}", "make kit", needed)


def _root(where: Where) -> Finding:
    if os.geteuid() == 0 or not where.libvirt_uri.startswith("qemu:///embed"):
        return Finding("root", True, f"runs as user {os.geteuid()}")
    return Finding("root", False, "machines are made by root with this libvirt address", "run the command with sudo")


def _python(_: Where) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version, "apt-get install python3 python3-venv")


def _packages(where: Where) -> Finding:
    wanted = _packages_to_run((where.root / "packages.debian").read_text())
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *wanted]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.splitlines()
    missing = sorted(set(wanted) - {row.split()[1] for row in shown if row.startswith("installed ")})
    if not missing:
        return Finding("packages", True, f"all {len(wanted)} that running needs are installed")
    return Finding("packages", False, f"missing: {', '.join(missing)}", "make setup")


def _packages_to_run(listed: str) -> list[str]:
    """The group `run` of packages.debian; the others are for tests and for builds."""
    group = listed.partition("[run]\n")[2].partition("\n[")[0]
    rows = [row.partition("#")[0].strip() for row in group.splitlines()]
    return [row for row in rows if row]


def _libvirt(where: Where) -> Finding:
    version = importlib.import_module("libvirt").getVersion()
    found = f"library {version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
    if not where.libvirt_uri.startswith("qemu:///embed"):
        return Finding("libvirt", True, found)
    drivers = list(Path("/usr/lib").glob("*/libvirt/connection-driver/libvirt_driver_qemu.so"))
    sentence = found + (", QEMU driver module found" if drivers else ", its QEMU driver module is missing")
    return Finding("libvirt", bool(drivers), sentence, "apt-get install libvirt-daemon-driver-qemu")


def _nftables(_: Where) -> Finding:
    done = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False, timeout=10)
    if done.returncode == 0:
        return Finding("nftables", True, "the kernel answers")
    return Finding("nftables", False, done.stderr.strip()[:200], "apt-get install nftables; modprobe nf_tables")


def _dnsmasq(_: Where) -> Finding:
    done = subprocess.run(["dnsmasq", "--version"], capture_output=True, text=True, check=False, timeout=10)
    if " nftset" not in done.stdout:
        return Finding("dnsmasq", False, "it cannot write into nftables sets", "apt-get install dnsmasq-base")
    command = ["ss", "-Hlntu", "sport = :53"]
    held = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.split()
    if {"0.0.0.0:53", "*:53"} & set(held):
        mend = "let that one listen on addresses of its own"
        return Finding("dnsmasq", False, "another DNS server holds port 53 of every address", mend)
    return Finding("dnsmasq", True, done.stdout.splitlines()[0].partition("  ")[0])


def _bridge(_: Where) -> Finding:
    name = f"mvmtry{os.getpid() % 100000}"
    command = ["ip", "link", "add", name, "type", "bridge"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False, timeout=10)
    if made.returncode == 0:
        return Finding("bridge", True, "a bridge can be made")
    return Finding("bridge", False, made.stderr.strip()[:200], "modprobe bridge (as root)")


def _tun(_: Where) -> Finding:
    with Path("/dev/net/tun").open("rb+", buffering=0):
        return Finding("tun", True, "/dev/net/tun opens", "modprobe tun")


def _memory(_: Where) -> Finding:
    rows = dict(row.split(":", 1) for row in Path("/proc/meminfo").read_text().splitlines())
    free = int(rows["MemAvailable"].split()[0]) // 1024
    return Finding("memory", free >= MEMORY_MB, f"{free} MiB available", f"free at least {MEMORY_MB} MiB")


def _disk(where: Where) -> Finding:
    free = shutil.disk_usage(where.state).free >> 20
    mend = f"free at least {DISK_MB} MiB, or move the state: make run STATE=/larger/disk"
    return Finding("disk", free >= DISK_MB, f"{free} MiB free for {where.state}", mend)


def _kit(where: Where) -> Finding:
    from vmbackend.guest.kit import find_kit

    try:
        return Finding("guest kit", True, f"version {find_kit(where.kit_dir).version}")
    except BackendError as error:
        return Finding("guest kit", False, error.sentence, "make kit")


def _kernel(where: Where) -> Finding:
    """Whether the own small kernel is there; Debian's does as well, a second slower."""
    from vmbackend.guest.kernel import own_kernel

    own = own_kernel(where.kit_dir)
    if own:
        return Finding("guest kernel", True, "the project's own small kernel", needed=False)
    sentence = "Debian's cloud kernel; the project's own starts a second faster"
    return Finding("guest kernel", False, sentence, "make kernel kit", needed=False)


def _kvm(where: Where) -> Finding:
    """What KVM can do is known by booting with it: some nested variants open the device and never boot."""
    from vmbackend.guest.kit import find_kit
    from vmbackend.libvirt.probe import probe_kvm

    with tempfile.TemporaryDirectory(prefix="mvm-probe-") as folder:
        report = probe_kvm(find_kit(where.kit_dir).kernel, Path(folder))
    mend = "" if report.works else "enable (nested) virtualisation for this machine; emulation serves until then"
    return Finding("kvm", report.works, report.sentence, mend, needed=False)


def port_finding(port: int, ours: bool) -> Finding:
    """Whether the instance's port is free, or held by the instance itself."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            sentence = "is this instance's" if ours else "is in use by another program"
            return Finding("port", ours, f"{port} {sentence}", "choose another: make run PORT=8001")
    return Finding("port", True, f"{port} is free")
