"""A libvirtd of the tests' own, in a mount namespace where the host's libvirt folders are folders of the test's.

So neither the host's configuration nor its daemons are touched, and a daemon that is started again finds its machines.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QEMU_CONF = """\
user = "root"
group = "root"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
namespaces = []
stdio_handler = "file"
"""
LIBVIRTD_CONF = """\
unix_sock_dir = "{folder}"
auth_unix_ro = "none"
auth_unix_rw = "none"
"""
SCRIPT = """
for place in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /run/libvirt; do
    mkdir -p "$place" "$1/host$place" && mount --bind "$1/host$place" "$place"
done
cp "$1/qemu.conf" /etc/libvirt/qemu.conf
exec libvirtd -f "$1/libvirtd.conf" -p "$1/libvirtd.pid"
"""


@contextmanager
def running_libvirtd(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A system libvirtd; gives its URI and its process. It is killed at the end; machines are the caller's to end."""
    (folder / "qemu.conf").write_text(QEMU_CONF)
    (folder / "libvirtd.conf").write_text(LIBVIRTD_CONF.format(folder=folder))
    process = start(folder)
    try:
        # By its transport: a process in which an embedded driver is open takes every plain qemu URI for its own.
        yield f"qemu+unix:///system?socket={folder}/libvirt-sock", process
    finally:
        process.kill()
        process.wait()


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the daemon and wait for its socket."""
    (folder / "libvirt-sock").unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-ec", SCRIPT, "libvirtd", str(folder)], stdout=log, stderr=log
        )
    until = time.monotonic() + 30
    while not (folder / "libvirt-sock").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError((folder / "log").read_text())
        time.sleep(0.05)
    return process
