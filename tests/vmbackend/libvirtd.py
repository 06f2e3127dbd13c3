"""A separate libvirtd for tests, in a mount namespace that replaces the host's libvirt folders by those of the test.

The host's configuration and daemons are not affected, and a restarted daemon finds its machines.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmbackend.libvirt.account import ensure_account
from vmbackend.libvirt.connection import QEMU_CONF

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


def uri(folder: Path) -> str:
    """With an explicit transport: an open embedded driver claims every plain qemu URI of its process."""
    return f"qemu+unix:///system?socket={folder}/libvirt-sock"


@contextmanager
def running_libvirtd(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a system libvirtd. It is killed at the end; the caller ends its machines.

    It sees the mounts of the host that exist when it starts.
    """
    (folder / "qemu.conf").write_text(QEMU_CONF)
    (folder / "libvirtd.conf").write_text(LIBVIRTD_CONF.format(folder=folder))
    process = start(folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the daemon and wait for its socket."""
    ensure_account()  # as the package of the systemd units does, which tests do not need
    (folder / "libvirt-sock").unlink(missing_ok=True)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            ["unshare", "-m", "sh", "-ec", SCRIPT, "libvirtd", str(folder)], stdout=log, stderr=log
        )
    deadline = time.monotonic() + 120
    while not (folder / "libvirt-sock").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError((folder / "log").read_text())
        time.sleep(0.05)
    return process
