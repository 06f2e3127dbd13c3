"""Lines of `make doctor` about the confinement of machines on this host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmbackend.libvirt.confinement_check import Line, find_processes, read_confinement
from vmbackend.libvirt.limits import CGROUPS
from vmbackend.uids import UidRange

_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
_SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_UID_MAP = Path("/proc/self/uid_map")
_CONTROLLERS = {"memory": "memory", "pids": "pids", "cpu": "cpu", "io": "blkio"}
# Lines that a host may lack: machines run without.
_OPTIONAL = frozenset({"AppArmor", "memory.max", "pids.max", "CPU weight", "I/O weight"})
_RESTART = "stop and start the machine: a machine that was started before an update is confined from its next start on"
_APPARMOR_FIX = "an embedded libvirt does not use AppArmor; docs/operations.md says how a libvirtd does"


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of the report; `needed` False: machines run without it."""

    name: str
    holds: bool
    found: str
    fix: str = ""
    needed: bool = True


def host_lines(uids: UidRange) -> list[ReportLine]:
    """Return what this host offers, whether machines run or not."""
    return [_user_ids(uids), _free_ids(uids), _namespaces(), _seccomp(), *_controllers(), _apparmor()]


def machine_lines(instance: str, machines_dir: Path, uids: UidRange) -> list[ReportLine]:
    """Return what holds for the instance's running machines: one line for each line of `read_confinement`."""
    tables = dict[str, list[Line]]()
    for process in find_processes(instance, machines_dir):
        try:
            tables[process.name] = read_confinement(process, uids)
        except (OSError, KeyError):
            continue  # it ended
    if not tables:
        return [
            ReportLine("confinement", False, "no machine runs, so there is nothing to check", "make up", needed=False)
        ]
    return [_summary(list(lines), len(tables)) for lines in zip(*tables.values(), strict=True)]


def _summary(lines: list[Line], machines: int) -> ReportLine:
    name, broken = lines[0].name, [line for line in lines if not line.holds]
    shown = broken[0] if broken else lines[0]
    found = f"{machines - len(broken)} of {machines}; {shown.found}"
    fix = _APPARMOR_FIX if name == "AppArmor" else _RESTART
    return ReportLine(name, not broken, found, fix, needed=name not in _OPTIONAL)


def _user_ids(uids: UidRange) -> ReportLine:
    """Return whether the range exists in this user namespace: in a container it may not."""
    ids = (uids.first, uids.machines[-1])
    rows = [tuple(map(int, row.split())) for row in _UID_MAP.read_text().splitlines()]
    holds = all(any(inside <= uid < inside + count for inside, _, count in rows) for uid in ids)
    fix = "set PLATFORM_MACHINE_UID_FIRST to a range that this container maps"
    return ReportLine("user ids", holds, f"{ids[0]} to {ids[1]}", fix)


def _free_ids(uids: UidRange) -> ReportLine:
    """Return whether accounts, or containers' ranges, have ids of the range."""
    taken = []
    for file, width in ((Path("/etc/passwd"), 0), (Path("/etc/subuid"), 1)):
        for row in file.read_text().splitlines() if file.exists() else ():
            fields = row.split(":")
            first, count = (int(fields[1]), int(fields[2])) if width else (int(fields[2]), 1)
            if first < uids.machines[-1] and first + count > uids.first:
                taken.append(f"{fields[0]} ({file})")
    fix = "set PLATFORM_MACHINE_UID_FIRST to a free range"
    return ReportLine("free user ids", not taken, ", ".join(taken) or "no account has one", fix)


def _namespaces() -> ReportLine:
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False, timeout=10)
    found = "can be made" if done.returncode == 0 else done.stderr.strip()[:200]
    return ReportLine("mount namespace", done.returncode == 0, found, "give this container CAP_SYS_ADMIN")


def _seccomp() -> ReportLine:
    return ReportLine("seccomp", _SECCOMP.exists(), "filters" if _SECCOMP.exists() else "not in this kernel")


def _controllers() -> Iterator[ReportLine]:
    unified = CGROUPS / "cgroup.controllers"
    for name, legacy in _CONTROLLERS.items():
        if unified.exists():
            present = name in unified.read_text().split()
        else:
            present = (CGROUPS / legacy / "cgroup.procs").exists()
        # The superuser may write even if the mode says otherwise, but not to a read-only mount.
        writable = present and os.access(CGROUPS if unified.exists() else CGROUPS / legacy, os.W_OK)
        found = "usable" if writable else "read-only" if present else "missing"
        fix = "mount the control groups writable; machines run without this limit until then"
        yield ReportLine(f"cgroup {name}", writable, found, fix, needed=False)


def _apparmor() -> ReportLine:
    enabled = _APPARMOR.exists() and _APPARMOR.read_text().strip() == "Y"
    found = "enabled" if enabled else "not in this kernel; the rest of the table holds without it"
    return ReportLine("AppArmor", enabled, found, "" if enabled else "boot with AppArmor", needed=False)
