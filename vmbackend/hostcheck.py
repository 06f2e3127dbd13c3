"""Checks of what a host needs to run machines, each with the command that fixes a failure.

Changes nothing: what a check creates (a bridge, a machine) is removed before it returns. Imports no Django.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmbackend.errors import BackendError
from vmbackend.uids import UidRange

# The least that is useful.
MEMORY_MB = 1024
DISK_MB = 4096
# The first release without two faults: bodies that reach other requests, and headers with underscores that reach the
# servers behind the edge as headers without.
CADDY_VERSION = (2, 11, 4)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `needed` False: optional, the platform works worse without it. `fix`: the command to
    run; empty if there is none.
    """

    name: str
    found: bool
    message: str
    fix: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """The files and addresses of the instance to check."""

    root: Path  # of the project
    kit_dir: Path
    state: Path
    libvirt_uri: str
    instance: str
    machines_dir: Path
    uids: UidRange
    has_peers: bool = False  # other hosts reach this one


def check_host(target: CheckTarget) -> Iterator[Finding]:
    """Run every check of the host, fast ones first. A check that fails to run is a finding, never an error."""
    checks: list[Callable[[CheckTarget], Finding]] = [
        *(_root, _python, _packages, _libvirt, _nftables, _dnsmasq, _bridge, _tun, _tool_confinement, _memory, _disk),
        *(_kit, _kernel, _kvm),
        *((_peer_rules,) if target.has_peers else ()),
    ]
    for check in checks:
        try:
            yield check(target)
        except (OSError, subprocess.SubprocessError, BackendError, ImportError) as error:
            needed = check not in (_kernel, _kvm)  # emulation and Debian's kernel work, too
            yield Finding(check.__name__.strip("_"), False, f"the check failed: {error}", "make kit", needed)
    yield from _capabilities()
    yield from _confinement(target)


def _root(target: CheckTarget) -> Finding:
    if os.geteuid() == 0 or not target.libvirt_uri.startswith("qemu:///embed"):
        return Finding("root", True, f"runs as user {os.geteuid()}")
    return Finding("root", False, "this libvirt URI requires root", "run the command with sudo")


def _python(_: CheckTarget) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version, "apt-get install python3 python3-venv")


def _packages(target: CheckTarget) -> Finding:
    wanted = _packages_to_run((target.root / "packages.debian").read_text())
    command = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *wanted]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.splitlines()
    missing = sorted(set(wanted) - {row.split()[1] for row in shown if row.startswith("installed ")})
    if not missing:
        return Finding("packages", True, f"all {len(wanted)} that running needs are installed")
    return Finding("packages", False, f"missing: {', '.join(missing)}", "make setup")


def _packages_to_run(listed: str) -> list[str]:
    """Return the group `run` of packages.debian; the others are for tests and for builds."""
    group = listed.partition("[run]\n")[2].partition("\n[")[0]
    rows = [row.partition("#")[0].strip() for row in group.splitlines()]
    return [row for row in rows if row]


def _libvirt(target: CheckTarget) -> Finding:
    version = importlib.import_module("libvirt").getVersion()
    found = f"library {version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
    if not target.libvirt_uri.startswith("qemu:///embed"):
        return Finding("libvirt", True, found)
    drivers = list(Path("/usr/lib").glob("*/libvirt/connection-driver/libvirt_driver_qemu.so"))
    message = found + (", QEMU driver module found" if drivers else ", its QEMU driver module is missing")
    return Finding("libvirt", bool(drivers), message, "apt-get install libvirt-daemon-driver-qemu")


def _nftables(_: CheckTarget) -> Finding:
    done = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False, timeout=10)
    if done.returncode == 0:
        return Finding("nftables", True, "the kernel answers")
    return Finding("nftables", False, done.stderr.strip()[:200], "apt-get install nftables; modprobe nf_tables")


def _peer_rules(_: CheckTarget) -> Finding:
    """Check a rule as packets of other hosts are judged by; nothing is added."""
    chain = "type filter hook forward priority 0\n fib saddr . iif oif missing drop"
    rule = f"table inet mvm_check {{\n chain c {{\n {chain}\n }}\n}}\n"
    command = ["nft", "--check", "--file", "-"]
    done = subprocess.run(command, input=rule, capture_output=True, text=True, check=False, timeout=10)
    if done.returncode == 0:
        return Finding("peer rules", True, "the kernel knows where an address is routed")
    return Finding("peer rules", False, done.stderr.strip()[:200], "modprobe nft_fib_inet nft_fib_ipv4")


def _dnsmasq(_: CheckTarget) -> Finding:
    done = subprocess.run(["dnsmasq", "--version"], capture_output=True, text=True, check=False, timeout=10)
    if " nftset" not in done.stdout:
        return Finding("dnsmasq", False, "built without nftset support", "apt-get install dnsmasq-base")
    command = ["ss", "-Hlntu", "sport = :53"]
    listeners = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.split()
    usage = subprocess.run(["dnsmasq", "--help"], capture_output=True, text=True, check=False, timeout=10).stdout
    if "--max-tcp-connections" not in usage:
        return Finding("dnsmasq", False, "older than 2.90", "apt-get install --only-upgrade dnsmasq-base")
    if {"0.0.0.0:53", "*:53"} & set(listeners):
        fix = "configure that server to listen on specific addresses"
        return Finding("dnsmasq", False, "another DNS server listens on port 53 of all addresses", fix)
    return Finding("dnsmasq", True, done.stdout.splitlines()[0].partition("  ")[0])


def _bridge(_: CheckTarget) -> Finding:
    name = f"mvmtry{os.getpid() % 100000}"
    command = ["ip", "link", "add", name, "type", "bridge"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False, timeout=10)
    if made.returncode == 0:
        return Finding("bridge", True, "a bridge can be created")
    return Finding("bridge", False, made.stderr.strip()[:200], "modprobe bridge (as root)")


def _tun(_: CheckTarget) -> Finding:
    with Path("/dev/net/tun").open("rb+", buffering=0):
        return Finding("tun", True, "/dev/net/tun opens", "modprobe tun")


def _tool_confinement(_: CheckTarget) -> Finding:
    """Run a tool as those run that read images and disks of users."""
    from vmbackend.tool_confinement import ToolConfinement, confined_command

    fix = "apt-get install bubblewrap util-linux; sysctl user.max_user_namespaces (must not be 0)"
    try:
        with confined_command(["true"], ToolConfinement()) as (command, descriptors):
            done = subprocess.run(
                command, pass_fds=descriptors, capture_output=True, text=True, check=False, timeout=20
            )
    except (BackendError, OSError) as error:
        return Finding("tool confinement", False, str(error), fix)
    if done.returncode == 0:
        return Finding("tool confinement", True, "tools that read images and disks of users run confined")
    return Finding("tool confinement", False, done.stderr.strip()[:200], fix)


def _memory(_: CheckTarget) -> Finding:
    rows = dict(row.split(":", 1) for row in Path("/proc/meminfo").read_text().splitlines())
    free = int(rows["MemAvailable"].split()[0]) // 1024
    return Finding("memory", free >= MEMORY_MB, f"{free} MiB available", f"free at least {MEMORY_MB} MiB")


def _disk(target: CheckTarget) -> Finding:
    free = shutil.disk_usage(target.state).free >> 20
    fix = f"free at least {DISK_MB} MiB, or move the state: make run STATE=/larger/disk"
    return Finding("disk", free >= DISK_MB, f"{free} MiB free for {target.state}", fix)


def _kit(target: CheckTarget) -> Finding:
    from vmbackend.guest.kit import find_kit

    try:
        return Finding("guest kit", True, f"version {find_kit(target.kit_dir).version}")
    except BackendError as error:
        return Finding("guest kit", False, error.message, "make kit")


def _kernel(target: CheckTarget) -> Finding:
    """Return whether the custom kernel is built; Debian's works, too, with a boot that takes a second longer."""
    from vmbackend.guest.kernel import custom_kernel

    custom = custom_kernel(target.kit_dir)
    if custom:
        return Finding("guest kernel", True, "the custom kernel", needed=False)
    message = "Debian's cloud kernel; the custom kernel boots a second faster"
    return Finding("guest kernel", False, message, "make kernel kit", needed=False)


def _kvm(target: CheckTarget) -> Finding:
    """Boot a kernel to find out: with some nested variants the device opens and no kernel boots."""
    from vmbackend.guest.kit import find_kit
    from vmbackend.libvirt.probe import probe_kvm

    with tempfile.TemporaryDirectory(prefix="mvm-probe-") as folder:
        report = probe_kvm(find_kit(target.kit_dir).kernel, Path(folder))
    fix = "" if report.works else "enable (nested) virtualisation for this host; until then machines are emulated"
    return Finding("kvm", report.works, report.message, fix, needed=False)


def _capabilities() -> Iterator[Finding]:
    """Yield QEMU's version, and a line for each thing that newer releases can do. None is needed, or used yet."""
    from vmbackend.capabilities import FLAGS
    from vmbackend.libvirt.capabilities import ask_programs

    found = ask_programs()
    yield Finding("qemu", bool(found.qemu), found.qemu or "does not answer", "make setup")
    for flag in FLAGS:
        there = bool(getattr(found, flag.field))
        yield Finding(f"newer: {flag.name}", there, flag.there if there else flag.lacking, needed=False)


def _confinement(target: CheckTarget) -> Iterator[Finding]:
    """Yield the table of what confines machines: what this host offers, then what holds for those that run."""
    from vmbackend.libvirt.confinement_report import host_lines, machine_lines

    for line in host_lines(target.uids):
        yield Finding(f"host: {line.name}", line.holds, line.found, line.fix, line.needed)
    for line in machine_lines(target.instance, target.machines_dir, target.uids):
        yield Finding(f"machines: {line.name}", line.holds, line.found, line.fix, line.needed)


def check_caddy(program: Path) -> Finding:
    """Return whether the edge's Caddy is one that is safe to use; Debian 12's is not."""
    try:
        done = subprocess.run([program, "version"], capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("caddy", False, f"{program} does not run: {error}", "make setup")
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", done.stdout)
    if found is None or tuple(map(int, found.groups())) < CADDY_VERSION:
        least = ".".join(map(str, CADDY_VERSION))
        message = f"{done.stdout.strip()[:40]} mixes the bodies of requests; {least} is the first that is safe"
        return Finding("caddy", False, message, "make setup")
    return Finding("caddy", True, found[0])


def check_port(port: int, ours: bool) -> Finding:
    """Return whether the instance's port is free or used by the instance itself."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            message = "is used by this instance" if ours else "is in use by another program"
            return Finding("port", ours, f"{port} {message}", "choose another: make run PORT=8001")
    return Finding("port", True, f"{port} is free")
