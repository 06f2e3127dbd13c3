"""The check of what confines a running machine's process, as the kernel shows it: nothing here trusts a configuration.

`make doctor` prints it for the machines of its instance, and a test asserts each line for a real one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmbackend.libvirt.domain_folders import CLOSED
from vmbackend.libvirt.limits import is_machine_group, is_unified, machine_group
from vmbackend.uids import UidRange

# libvirt adds its own terminals and shared memory to the list of devices.
DEVICES = frozenset({"null", "zero", "urandom", "kvm"})
_PROC = Path("/proc")
_ALWAYS_MOUNTED = frozenset({"ptmx", "pts", "shm", "mqueue", "hugepages"})
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: whether it holds for one process, and what was found."""

    name: str
    holds: bool
    found: str


@dataclass(frozen=True, slots=True)
class MachineProcess:
    """The hypervisor process of one machine."""

    pid: int
    name: str  # the domain's
    folder: Path  # the machine's directory

    def read(self, name: str) -> str:
        """Return a file of its folder in /proc."""
        return (_PROC / str(self.pid) / name).read_text(errors="replace")

    def status(self, field: str) -> list[str]:
        """Return a field of its status."""
        rows = dict(row.split(":", 1) for row in self.read("status").splitlines() if ":" in row)
        return rows[field].split()


def find_processes(instance: str, machines_dir: Path) -> list[MachineProcess]:
    """Return the running machines of an instance."""
    found = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if match := re.search(rf"\0guest=(mvm-{instance}-(\w+)),", command):
            found.append(MachineProcess(int(entry.name), match[1], machines_dir / match[2]))
    return sorted(found, key=lambda process: process.pid)


def read_confinement(process: MachineProcess, uids: UidRange) -> list[Line]:
    """Return the table of one process. Raise OSError if it ended."""
    checks: list[Callable[[MachineProcess, UidRange], Line]] = [
        *(_user, _groups, _capabilities, _no_new_privileges, _seccomp, _apparmor, _mounts, _devices, _files),
        *(_domain_folder, _core_dumps, _file_size, _memory, _processes, _cpu_weight, _io_weight, _no_displays),
    ]
    return [check(process, uids) for check in checks]


def _user(process: MachineProcess, uids: UidRange) -> Line:
    found = {*process.status("Uid"), *process.status("Gid")}
    holds = len(found) == 1 and int(next(iter(found))) in uids.machines
    return Line("uid and gid of its own", holds, ", ".join(sorted(found)))


def _groups(process: MachineProcess, _: UidRange) -> Line:
    found = set(process.status("Groups"))
    return Line("no other groups", found <= set(process.status("Gid")), ", ".join(sorted(found)) or "none")


def _capabilities(process: MachineProcess, _: UidRange) -> Line:
    """Check that no capability is held. The capabilities of the bounding set cannot be gained either: see the next
    line.
    """
    sets = {name: int(process.status(name)[0], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
    held = [f"{name} {value:x}" for name, value in sets.items() if value]
    return Line("no capability", not held, ", ".join(held) or "none")


def _no_new_privileges(process: MachineProcess, _: UidRange) -> Line:
    holds = process.status("NoNewPrivs") == ["1"]
    return Line("no new privileges", holds, "by no program that it starts" if holds else "programs may add some")


def _seccomp(process: MachineProcess, _: UidRange) -> Line:
    found = process.status("Seccomp")[0]
    return Line("seccomp", found == "2", {"2": "filter", "1": "strict"}.get(found, "none"))


def _apparmor(process: MachineProcess, _: UidRange) -> Line:
    try:
        found = process.read("attr/current").strip("\0\n")
    except OSError:
        found = ""
    return Line("AppArmor", found.endswith("(enforce)"), found or "this kernel has none")


def _mounts(process: MachineProcess, _: UidRange) -> Line:
    own = (_PROC / str(process.pid) / "ns/mnt").readlink()
    return Line("mount namespace", own != (_PROC / "self/ns/mnt").readlink(), str(own))


def _devices(process: MachineProcess, _: UidRange) -> Line:
    folder = _PROC / str(process.pid) / "root/dev"
    found = {entry.name for entry in os.scandir(folder)} - _ALWAYS_MOUNTED
    return Line("devices", found <= DEVICES, ", ".join(sorted(found)))


def _files(process: MachineProcess, uids: UidRange) -> Line:
    """Check that the directory is searched by its group alone, and that the process cannot change a name in it."""
    uid, folder = int(process.status("Uid")[0]), process.folder.stat()
    holds = (folder.st_uid, folder.st_gid, stat.S_IMODE(folder.st_mode)) == (0, uid, 0o710)
    others = [e.stat(follow_symlinks=False).st_gid for e in os.scandir(process.folder.parent) if e.is_dir()]
    shared = others.count(uid) > 1 or uid not in uids.machines
    return Line("files of its own", holds and not shared, f"{stat.S_IMODE(folder.st_mode):o} root:{folder.st_gid}")


def _domain_folder(process: MachineProcess, _: UidRange) -> Line:
    """Check libvirt's folder with the monitor: the process cannot change a name in it."""
    match = re.search(r'"file":"([^"]+)/master-key\.aes"', process.read("cmdline"))
    if match is None:
        return Line("libvirt's folder", False, "not found")
    folder = Path(f"{_PROC}/{process.pid}/root{match[1]}").lstat()
    mode = stat.S_IMODE(folder.st_mode)
    holds = (folder.st_uid, folder.st_gid, mode) == (0, int(process.status("Gid")[0]), CLOSED)
    return Line("libvirt's folder", holds, f"{mode:o} {folder.st_uid}:{folder.st_gid}")


def _core_dumps(process: MachineProcess, _: UidRange) -> Line:
    core, command = _limit(process, "Max core file size"), process.read("cmdline")
    holds = core == "0" and "dump-guest-core=off" in command
    return Line("no core dumps", holds, f"limit {core}, guest memory excluded")


def _file_size(process: MachineProcess, _: UidRange) -> Line:
    found = _limit(process, "Max file size")
    return Line("size of files", found.isdigit(), f"{int(found) >> 20} MiB" if found.isdigit() else "no limit")


def _memory(process: MachineProcess, _: UidRange) -> Line:
    found = _group_value(process, "memory", "memory.max", "memory.limit_in_bytes")
    holds = found is not None and found.isdigit() and int(found) < _UNLIMITED
    return Line("memory.max", holds, f"{int(found) >> 20} MiB" if found and holds else "no limit")


def _processes(process: MachineProcess, _: UidRange) -> Line:
    found, user = _group_value(process, "pids", "pids.max", "pids.max"), _limit(process, "Max processes")
    holds = found is not None and found.isdigit()
    return Line("pids.max", holds, f"{found if holds else 'no limit of the group'}, {user} of the user")


def _cpu_weight(process: MachineProcess, _: UidRange) -> Line:
    found = _group_value(process, "cpu", "cpu.weight", "cpu.shares")
    return Line("CPU weight", found is not None, found or "none")


def _io_weight(process: MachineProcess, _: UidRange) -> Line:
    names = ("io.weight", "io.bfq.weight", "blkio.weight", "blkio.bfq.weight")
    found = next((value for name in names if (value := _group_value(process, "blkio", name, name))), None)
    return Line("I/O weight", found is not None, found or "none")


def _no_displays(process: MachineProcess, _: UidRange) -> Line:
    arguments = process.read("cmdline").split("\0")
    present = [word for word in ("-vnc", "-spice", "-tpmdev") if word in arguments]
    return Line("no VNC, SPICE, TPM", not present, ", ".join(present) or "none")


def _limit(process: MachineProcess, name: str) -> str:
    row = next(row for row in process.read("limits").splitlines() if row.startswith(name))
    return row[len(name) :].split()[0]


def _group_value(process: MachineProcess, controller: str, unified: str, legacy: str) -> str | None:
    """Return a value of the machine's control group; None if it has no such group, or is not in it."""
    group = machine_group(process.pid, controller)
    file = group / (unified if is_unified() else legacy) if group is not None else None
    inside = is_unified() or any(
        controller in row.split(":")[1].split(",") and any(map(is_machine_group, row.split("/")))
        for row in process.read("cgroup").splitlines()
    )
    if file is None or not inside or not file.exists():
        return None
    return file.read_text().split("\n")[0].removeprefix("default ").strip()
