"""The removal of an instance from the host. The processes have been stopped before."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from supervise.instance import Instance, InstanceError
from supervise.libvirtd import undefine_machines, uses_libvirtd
from supervise.orphans import end_matching, is_marked
from supervise.postgres import data_folder
from supervise.postgres_processes import end_server
from supervise.state_folder import CHOICES, PARTS, is_shared
from vmbackend.errors import BackendError
from vmbackend.libvirt.peer_routes import PeerRoutes
from vmbackend.libvirt.reach import MOUNTS, unmount_all
from vmbackend.trees import remove_tree


def remove_instance(instance: Instance, say: Callable[[str], None]) -> None:
    """End this instance's machines, remove its links and firewall tables, then its state folder.

    Idempotent: a second call finishes a first one that failed.
    """
    end_server(data_folder(instance))
    machines = end_matching(lambda pid: _is_machine_of(pid, instance), signal.SIGTERM, 10.0)
    end_matching(lambda pid: _is_machine_of(pid, instance), signal.SIGKILL, 5.0)
    say(f"ended {machines} machine{'' if machines == 1 else 's'}")
    end_matching(lambda pid: _runs_in(pid, instance, "dnsmasq"), signal.SIGKILL, 5.0)
    for link in _links(instance.id):
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)
    for family, table in _tables(instance.id):
        subprocess.run(["nft", "delete", "table", family, table], check=False, capture_output=True)
    with suppress(BackendError):
        PeerRoutes(instance.id).replace_all(())
    _undefine_machines(instance, say)
    # Before the folder: a mount of it elsewhere would keep its content.
    unmount_all(instance.id)
    if instance.short != instance.state:
        instance.short.unlink(missing_ok=True)
    _remove_folder(instance.state)
    say(f"removed {instance.state}")


def _undefine_machines(instance: Instance, say: Callable[[str], None]) -> None:
    """Undefine machines at a libvirtd, which would keep them. If it does not answer, that is said: its host may be gone
    for good.
    """
    try:
        settings = instance.settings()
        if uses_libvirtd(settings):
            undefine_machines(settings.libvirt_uri, instance.id)
    except (InstanceError, BackendError) as error:
        say(f"definitions of machines may remain: {error}")


def _remove_folder(state: Path) -> None:
    """Remove the folder; its mark goes last, so that a second call goes on. From a shared folder only its own parts go;
    of a link, its target goes; a mount point stays, empty.
    """
    shared = is_shared(state)
    for entry in sorted(state.iterdir(), key=lambda entry: entry.name == CHOICES):
        if shared and entry.name not in PARTS:
            continue
        # Tenants and their machines' processes made some of it, of any depth. Other file systems are left to rmtree.
        if not remove_tree(entry):
            shutil.rmtree(entry)
    if not shared and not state.is_mount():
        state.resolve().rmdir()
        if state.is_symlink():
            state.unlink()


def _is_machine_of(pid: int, instance: Instance) -> bool:
    """Return whether a process is a QEMU whose command line names a path inside this instance's state folder, or inside
    a mount of it.
    """
    return _runs_in(pid, instance, "qemu-")


def _runs_in(pid: int, instance: Instance, program: str) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    inside = (f"{instance.state}/", f"{instance.short}/", f"{MOUNTS / instance.id}/")
    return name.startswith(program) and any(path in arguments for path in inside)


def traces_of(instance_id: str) -> str:
    """Return names of what the instance has on this host besides its files, for a message; empty if there is
    nothing.
    """
    running = ["machines"] if machines_that_run(instance_id) else []
    processes = ["processes"] if is_marked(instance_id) else []
    tables = [name for _, name in _tables(instance_id)]
    return ", ".join([*processes, *running, *_links(instance_id), *tables][:5])


def machines_that_run(instance_id: str) -> set[str]:
    """Return ids of machines of the instance that have a process on this host, as its command line says."""
    name = re.compile(rf"guest=mvm-{instance_id}-(ws_[2-7a-z]{{16}})\b")
    found: set[str] = set()
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue  # it has ended
        if line.partition(b"\0")[0].rpartition(b"/")[2].startswith(b"qemu-system"):
            found.update(name.findall(line.decode(errors="replace")))
    return found


def _links(instance_id: str) -> list[str]:
    """Return bridge and taps: every link whose name holds the instance's id."""
    return [path.name for path in Path("/sys/class/net").iterdir() if instance_id in path.name]


def _tables(instance_id: str) -> list[tuple[str, str]]:
    shown = subprocess.run(["nft", "list", "tables"], check=False, capture_output=True, text=True)
    rows = [row.split() for row in shown.stdout.splitlines()]
    return [(row[1], row[2]) for row in rows if len(row) == 3 and instance_id in row[2]]
