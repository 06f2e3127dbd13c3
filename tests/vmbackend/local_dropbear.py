"""A guest's control channel without a VM: Debian's dropbear on a loopback port, in a separate mount namespace."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import asyncssh

from tests.compiled import compile_program
from tests.free_ports import free_port
from vmbackend.guest.commands import KitPaths
from vmbackend.guest.session import GuestAddress

SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
SFTP_SERVER = "/usr/lib/openssh/sftp-server"


def missing_requirement() -> str | None:
    """Why these tests cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in ("dropbear", "dropbearkey", "unshare", "musl-gcc") if shutil.which(name) is None]
    if not Path(SFTP_SERVER).exists():
        absent.append("openssh-sftp-server")
    return f"needs {', '.join(absent)}" if absent else None


def compile_helper(target: Path) -> None:
    """Compile the kit's helper without the file that replaces user lookups in its sftp-server."""
    sources = [path for path in sorted(SOURCES.glob("*.c")) if path.name != "lookup.c"]
    compile_program(target, ("-static", "-O1", "-w"), sources, SOURCES)


class LocalGuest:
    """A running dropbear. `root` is where the test may write."""

    def __init__(self, directory: Path, helper: Path) -> None:
        self.root = directory / "files"
        self.root.mkdir()
        self.tracking = directory / "tracking"
        self.tracking.mkdir()
        busybox = shutil.which("busybox") or "busybox"
        self.kit = KitPaths(str(helper), SFTP_SERVER, busybox, "/", str(self.tracking))
        self.private_key = directory / "key"
        self._make_login(directory)
        key = subprocess.run(
            ["dropbearkey", "-t", "ed25519", "-f", str(directory / "host_key")],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        self.host_key = next(line for line in key.splitlines() if line.startswith("ssh-ed25519"))
        self.port = free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> GuestAddress:
        return GuestAddress("local", "127.0.0.1", self.port, self.host_key)

    def start(self) -> None:
        """Start the server and wait until it listens."""
        script = f"""mount --bind passwd /etc/passwd && exec dropbear -F -E -s -r host_key \
            -P pid -p 127.0.0.1:{self.port} -W 1048576"""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script],
                cwd=self._directory, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self._directory / "log").read_text())

    def stop(self) -> None:
        """Stop the server and all its connections."""
        if self._process is not None:
            self.drop_connections()
            self._process.kill()
            self._process.wait()
            self._process = None

    def drop_connections(self) -> None:
        """Kill the connections; the server keeps running."""
        for pid in self.connections():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def connections(self) -> list[int]:
        """The server's children, one per connection."""
        assert self._process is not None
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def _make_login(self, directory: Path) -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.private_key.touch(mode=0o600)
        key.write_private_key(str(self.private_key))
        home = directory / "home"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        (home / ".ssh" / "authorized_keys").write_bytes(key.export_public_key())
        (directory / "passwd").write_text(f"root:x:0:0:root:{home}:/bin/sh\nnobody:x:65534:65534:n:/:/bin/sh\n")
