"""The folders that libvirt makes for each running domain, closed to the machine's process.

    <lib>/domain-<id>-<name>/                  the monitor's socket, the key of the process's secrets
    <lib>/channel/target/domain-<id>-<name>/   sockets of channels without a path of their own: none

libvirt gives them to the machine's user, as the process reads its key when it starts, but goes on working in them as
root. In a folder of its own a process that was taken over could replace the monitor's socket by a link to that of
another machine, to which libvirt would connect when it is opened again, or leave a tree that libvirt cannot remove,
with a link in place of the key that a later domain of the same number would overwrite. So a folder belongs to root
and is searched by the machine's group alone from before its CPUs run, and from before libvirt is opened again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree as ET

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.process import run_tool

log = logging.getLogger(__name__)

CLOSED = 0o710
# The folder of a libvirtd; an embedded libvirt has the folder `lib/qemu` of its root.
_DAEMON_LIB = "var/lib/libvirt/qemu"
_MONITOR = "monitor.sock"
_REMOVED = "removed-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folders_of(root: Path | None, pid: int) -> Path:
    """Return <lib> of an embedded libvirt with this root; without a root, that of the libvirtd, as the process `pid`
    sees it.

    A libvirtd may be in another mount namespace than this process; the machine's is made from the libvirtd's.
    """
    return root / "lib" / "qemu" if root is not None else Path("/proc") / str(pid) / "root" / _DAEMON_LIB


def close_folders(lib: Path, domain_id: int, gid: int) -> None:
    """Close the folders of a started domain whose CPUs are stopped.

    A process that restored memory may have been taken over by it, so nothing is left in them that is neither a socket
    nor a file. Raise BackendUnavailable if that was so or if there is none; the folders are closed all the same.
    """
    found = [folder for place in _places(lib) for folder in place.glob(f"domain-{domain_id}-*")]
    if not found:
        raise BackendUnavailable("The folder of the machine's monitor was not found.")
    foreign = [f"{folder}/{name}" for folder in found for name in _close(folder, gid)]
    if foreign:
        log.error("a machine's process has put %s into libvirt's folder", ", ".join(foreign))
        raise BackendUnavailable("The machine's process has changed libvirt's files.")


def clean_folders(root: Path) -> None:
    """Close the folders of domains and remove all others, before an embedded libvirt is opened. Idempotent.

    If the monitor's socket was replaced, libvirt finds none and ends that machine. Raise OSError
    if a folder cannot be closed; one that cannot be removed is logged.
    """
    lib, known = root / "lib" / "qemu", _known_folders(root / "run" / "qemu")
    for place in _places(lib):
        for folder in [*place.glob("domain-*"), *place.glob(f"{_REMOVED}*")]:
            if folder.name in known:
                _close_known(folder)
            else:
                _remove_folder(folder)


def _places(lib: Path) -> Iterator[Path]:
    yield from (lib, lib / "channel" / "target")


def _known_folders(run: Path) -> set[str]:
    """Return the names of the folders of domains that libvirt will find: of those with a status file that it can
    read.
    """
    known = set()
    for status in run.glob("*.xml"):
        with suppress(OSError, ET.ParseError):
            state = ET.parse(status).getroot()  # noqa: S314 - libvirt's own file
            known |= {Path(element.get("path", "")).name for name in ("libDir", "channelTargetDir")
                      for element in state.findall(name)}  # fmt: skip
    return known


def _close_known(folder: Path) -> None:
    """Close a folder whose group is the machine's, whether libvirt or this module gave it to it."""
    for name in _close(folder, folder.lstat().st_gid):
        log.error("%s/%s was put there by the machine's process: it is removed", folder, name)
        _remove_tree(folder / name)


def _close(folder: Path, gid: int) -> list[str]:
    """Close one folder; return the names in it that are neither sockets nor files, or a monitor that is no socket."""
    descriptor = os.open(folder, _OPEN)
    try:
        # First: what is found below cannot be replaced any more.
        os.fchown(descriptor, 0, gid)
        os.fchmod(descriptor, CLOSED)
        return [name for name in [entry.name for entry in os.scandir(descriptor)] if _is_foreign(name, descriptor)]
    finally:
        os.close(descriptor)


def _is_foreign(name: str, folder: int) -> bool:
    mode = os.lstat(name, dir_fd=folder).st_mode
    return not (stat.S_ISSOCK(mode) or (stat.S_ISREG(mode) and name != _MONITOR))


def _remove_folder(folder: Path) -> None:
    """Rename the folder, then remove it: a tree that cannot be removed does not belong to a domain then."""
    removed = folder if folder.name.startswith(_REMOVED) else folder.with_name(f"{_REMOVED}{uuid4().hex}")
    if removed != folder:
        folder.rename(removed)
    _remove_tree(removed)


def _remove_tree(path: Path) -> None:
    """Remove a tree by GNU rm, which removes trees of any depth and follows no link. Remains are logged."""
    with suppress(BackendUnavailable):
        run_tool(["rm", "-rf", "--one-file-system", "--", str(path)])
