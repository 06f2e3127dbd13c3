"""One machine of plain QEMU for the tests of the guest kit: no hypervisor library, no bridge, no root."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import asyncssh

from tests.free_ports import free_port
from vmbackend.driver import Boot
from vmbackend.guest.bootconfig import CONTROL_PORT, FW_CFG_NAME, GuestConfig, encode_config, generate_host_key
from vmbackend.guest.kit import KERNEL_ARGS, Kit
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.ssh import SSHGuestSession
from vmbackend.libvirt.host_tsc import HostTsc
from vmbackend.libvirt.provisioner import FIRMWARE

HOST_TSC = HostTsc()
# No limit here is one of speed: beside other work everything takes several times as long.
HANG_SECONDS = 300.0
WEB_PORT = 8080
# A request that is refused, and what its reply begins with.
PROBE, PROBE_REPLY = b"fresh -1 00\n", "failed -1 "


def log_text(*names: str) -> str:
    """The command that prints the texts of the records in these logs. A line without blanks is printed as it is."""
    paths = " ".join(f"/var/log/workspace/{name}.log" for name in names)
    return f"/run/kit/bin/busybox cut -d' ' -f4- {paths}"


def text_of_records(log: str) -> str:
    """The same of the contents of a log, in the host."""
    return "".join(f"{line.split(' ', 3)[3]}\n" for line in log.split("\n")[:-1])


@dataclass
class Machine:
    """A running QEMU. `close` kills it in any state."""

    folder: Path
    process: subprocess.Popen[bytes]
    events: socket.socket
    port: int
    host_key: str
    client_key: asyncssh.SSHKey
    started: float
    ssh_port: int = 0  # forwarded to the guest's port 22
    web_port: int = 0  # forwarded to the guest's WEB_PORT
    seen: bytes = b""

    def line(self, timeout: float = HANG_SECONDS) -> str:
        """The next line of the events port; raises TimeoutError or EOFError."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.seen:
            self.events.settimeout(max(0.01, deadline - time.monotonic()))
            got = self.events.recv(4096)
            if not got:
                raise EOFError(self.console())
            self.seen += got
        line, _, self.seen = self.seen.partition(b"\n")
        return line.decode()

    def console(self) -> str:
        return (self.folder / "console").read_text(errors="replace")

    def connect(self) -> asyncssh.SSHClientConnection:
        return self._connect(self.port, self.client_key)

    def connect_user(self, key: asyncssh.SSHKey | None, **options: object) -> asyncssh.SSHClientConnection:
        """Connect to the SSH server for users; `key` None offers no key."""
        return self._connect(self.ssh_port, key, **options)

    def session(self) -> SSHGuestSession:
        """A session of the control channel; it belongs to the event loop that first uses it."""
        path = self.folder / "client_key"
        path.touch(mode=0o600)
        self.client_key.write_private_key(str(path))
        return SSHGuestSession(GuestAddress("m", "127.0.0.1", self.port, self.host_key), path)

    def _connect(self, port: int, key: asyncssh.SSHKey | None, **options: object) -> asyncssh.SSHClientConnection:
        known = asyncssh.import_known_hosts(f"[127.0.0.1]:{port} {self.host_key}\n")
        return asyncssh.connect(
            "127.0.0.1",
            port,
            username="root",
            client_keys=[key] if key else None,
            agent_path=None,
            known_hosts=known,
            server_host_key_algs=["ssh-ed25519"],
            config=None,
            **options,
        )

    def qmp(self, command: str, **arguments: object) -> dict[str, object]:
        """Run a QMP command and return its reply."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "qmp"))
            stream = client.makefile("rw")
            stream.readline()
            for name, given in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": given}) + "\n")
                stream.flush()
                # Events may come first.
                while "return" not in (answer := json.loads(stream.readline())) and "error" not in answer:
                    pass
            return answer

    def limit_reads(self, per_second: int) -> None:
        """Limit the reads of the data disk. 0: no limit."""
        limits = dict.fromkeys(("bps", "bps_rd", "bps_wr", "iops", "iops_wr"), 0)
        answer = self.qmp("block_set_io_throttle", device="data", **limits, iops_rd=per_second)
        assert "return" in answer, answer

    def agent(
        self, command: str, arguments: Mapping[str, object] | None = None, timeout: float = HANG_SECONDS
    ) -> object:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(self.folder / "agent"))
            request = {"execute": command, **({"arguments": arguments} if arguments else {})}
            client.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(client.makefile().readline())

    def send_requests(self, *requests: bytes, answers: int = 1) -> list[str]:
        """Send these bytes on one connection of the port of requests; return the lines of the replies."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "requests"))
            self._wait_until_noticed(client)
            client.settimeout(HANG_SECONDS)
            for request in requests:
                client.sendall(request)
            lines = (line.rstrip("\n") for line in client.makefile() if not line.startswith(PROBE_REPLY))
            return list(islice(lines, answers))

    def _wait_until_noticed(self, client: socket.socket) -> None:
        """The guest notices a connection after its first bytes, on a busy host; a reply before that is dropped."""
        client.settimeout(1)
        for _ in range(int(HANG_SECONDS)):
            client.sendall(PROBE)
            with suppress(TimeoutError):
                while (got := client.recv(1)) and got != b"\n":
                    pass
                return
        raise TimeoutError(self.console())

    def resync_guest(self, entropy: bytes) -> list[str]:
        """Send a resync request with the current time and this entropy; return the words of the reply."""
        return self.send_requests(f"fresh {time.time_ns()} {entropy.hex()}\n".encode())[0].split()

    def sleep(self) -> None:
        """Write the memory to the folder and end the process; `wake` restores it."""
        self.qmp("migrate", uri=f"exec:cat > {self.folder / 'memory'}")
        while self.qmp("query-migrate")["return"]["status"] not in ("completed", "failed"):
            time.sleep(0.1)
        self.close()

    def wait_off(self) -> set[str]:
        """Wait until QEMU has ended. Returns what had not ended within its grace time, as the console says: `programs`,
        `other processes`, `logs`, `killed processes`. Of what needs no program the last ones say how busy the host is.
        """
        self.process.wait(HANG_SECONDS)
        return set(re.findall(r"kit: ([a-z ]+) have not ended after", self.console()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.events.close()

    def file_on_disk(self, path: str) -> str:
        """A file that the guest has written or changed, read from the disk of a machine that is off: the next boot
        would take seconds.
        """
        return self._tool("debugfs", "-R", f"cat /upper{path}")

    def needs_recovery(self) -> bool:
        """Whether the file system of a machine that is off was not unmounted."""
        return "needs_recovery" in self._tool("dumpe2fs", "-h")

    def _tool(self, name: str, *arguments: str) -> str:
        command = [f"/sbin/{name}", *arguments, str(self.folder / "data")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_disk(path: Path, size_mb: int = 256) -> None:
    with path.open("wb") as disk:
        disk.truncate(size_mb << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(path)], check=True)


def make_squashfs(root: Path, target: Path) -> Path:
    target.unlink(missing_ok=True)
    command = ["mksquashfs", str(root), str(target), "-quiet", "-no-progress", "-all-root", "-comp", "zstd"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target


def busybox_root(folder: Path) -> Path:
    """A root with a shell and users, without any dynamic library."""
    for name in ("bin", "etc", "home/dev"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", folder / "bin/busybox")
    for name in (
        "sh",
        "id",
        "cat",
        "sleep",
        "env",
        "echo",
        "rm",
        "mv",
        "poweroff",
        "reboot",
        "ls",
        "pwd",
        "stat",
        "nc",
        "head",
        "kill",
        "ps",
    ):
        (folder / "bin" / name).symlink_to("busybox")
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\ndev:x:1000:\nextra:x:1005:dev\n")
    return folder


def start(folder: Path, kit: Kit, base: Path, boot: Boot, clock: str = "utc") -> Machine:
    """Start a machine; its data disk remains in `folder` between starts. `clock`: QEMU's `-rtc base`."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "data").exists():
        make_disk(folder / "data")
    host_key = generate_host_key(folder / "host_key")
    client_key = asyncssh.generate_private_key("ssh-ed25519")
    config = GuestConfig(
        boot=boot,
        address="10.0.2.15/24",
        gateway="10.0.2.2",
        dns=("10.0.2.3",),
        host_key=(folder / "host_key").read_bytes(),
        authorized_key=client_key.export_public_key().decode(),
    )
    (folder / "config").write_bytes(encode_config(config))
    ports = free_port(), free_port(), free_port()
    for name in ("events", "agent", "requests", "qmp", "console"):
        (folder / name).unlink(missing_ok=True)
    begun = time.monotonic()
    command = [*_command(folder, kit, base, ports), "-rtc", f"base={clock}"]
    process = subprocess.Popen(command, stderr=(folder / "qemu.err").open("wb"))
    try:
        events = _connected(folder / "events", process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return Machine(folder, process, events, ports[0], host_key, client_key, begun, *ports[1:])


def wake(asleep: Machine, kit: Kit, base: Path) -> Machine:
    """Start a new process from the memory of a sleeping machine and wait until it runs."""
    command = _command(asleep.folder, kit, base, (asleep.port, asleep.ssh_port, asleep.web_port))
    process = subprocess.Popen([*command, "-incoming", f"exec:cat {asleep.folder / 'memory'}"])
    try:
        events = _connected(asleep.folder / "events", process)
        machine = replace(asleep, process=process, events=events, seen=b"")
        # The socket of the former process refuses until this one has replaced it.
        _connected(asleep.folder / "qmp", process).close()
        # Its sockets exist before its network does; the monitor answers once all devices exist.
        while machine.qmp("query-status")["return"]["status"] != "running":
            time.sleep(0.01)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return machine


def _connected(path: Path, process: subprocess.Popen[bytes]) -> socket.socket:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
        except OSError:
            client.close()
            if process.poll() is not None:
                raise RuntimeError((path.parent / "qemu.err").read_text()) from None
            time.sleep(0.01)
        else:
            return client
    raise TimeoutError("QEMU opened no events port")


def _command(folder: Path, kit: Kit, base: Path, forwarded: tuple[int, int, int]) -> list[str]:
    control, ssh, web = (
        f"hostfwd=tcp:127.0.0.1:{port}-:{inside}"
        for port, inside in zip(forwarded, (CONTROL_PORT, 22, WEB_PORT), strict=True)
    )
    drives = []
    for serial, path, extra in (("base", base, ",readonly=on"), ("data", folder / "data", "")):
        drives += ["-drive", f"file={path},if=none,id={serial},format=raw{extra}"]
        drives += ["-device", f"virtio-blk-pci,drive={serial},serial={serial}"]
    ports = ["-device", "virtio-serial-pci"]
    names = {"agent": "org.qemu.guest_agent.0", "events": "org.microvm.events.0", "requests": "org.microvm.requests.0"}
    for ident, name in names.items():
        ports += ["-chardev", f"socket,id={ident},path={folder / ident},server=on,wait=off"]
        ports += ["-device", f"virtserialport,chardev={ident},name={name}"]
    return [
        # QEMU ends with the test process, even if that is killed.
        *("setpriv", "--pdeathsig", "KILL", "--"),
        *("qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", os.environ.get("KIT_TEST_CPU", "max")),
        *("-m", "256", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *(("-bios", str(FIRMWARE)) if FIRMWARE.exists() else ()),
        *(
            "-kernel",
            str(kit.kernel),
            "-initrd",
            str(kit.initrd),
            "-append",
            os.environ.get("KIT_TEST_ARGS", KERNEL_ARGS + HOST_TSC.kernel_args()),
        ),
        *drives,
        *ports,
        *(
            "-netdev",
            f"user,id=net,{control},{ssh},{web}",
            "-device",
            "virtio-net-pci,netdev=net",
        ),
        *("-device", "virtio-rng-pci", "-device", "virtio-balloon-pci"),
        *("-fw_cfg", f"name={FW_CFG_NAME},file={folder / 'config'}"),
        *("-serial", f"file:{folder / 'console'}", "-qmp", f"unix:{folder / 'qmp'},server=on,wait=off"),
    ]
