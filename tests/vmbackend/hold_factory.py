"""The guest's `hold` as an ordinary process of this host, and clients that reach it through `guest attach` by pipes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.compiled import compile_program
from vmbackend.fake.holds import PipeTransport
from vmbackend.guest.hold.client import HoldClient, HoldSettings
from vmbackend.guest.hold.frames import Answer
from vmbackend.guest.hold.terminal import HeldTerminal

SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
WRAPPED = "-Wl,--wrap=enter_guest,--wrap=open_guest_root,--wrap=exec_shell,--wrap=task_folder"
FLAGS = ("-static", "-O1", "-g", "-std=gnu11", WRAPPED)
QUIET = HoldSettings(timeout=60.0)
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
# The guest always has the hierarchy; a container in which these tests run may not.
needs_cgroups = pytest.mark.skipif(
    not any((path / "cgroup.controllers").exists() and os.access(path, os.W_OK) for path in CGROUPS),
    reason="needs a cgroup2 hierarchy",
)


def compile_hold(target: Path, *flags: str) -> None:
    """Compile the kit's program, with the host's file system in place of the user's (`hold_host.c`)."""
    sources = [path for path in sorted(SOURCES.glob("*.c")) if path.name != "lookup.c"]
    compile_program(target, (*FLAGS, *flags), [*sources, Path(__file__).with_name("hold_host.c")], SOURCES)


class LocalHold:
    """A running `guest hold`; `close` kills it and with it every terminal."""

    def __init__(self, helper: Path, folder: Path, *, buffer_size: int = 256 * 1024, linger: float = 10.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.helper, self.folder = helper, folder
        self.options = (str(buffer_size), str(int(linger * 1000)))
        self.attached: list[PipeTransport] = []
        self.start()

    @property
    def tasks(self) -> Path:
        """The folder of its tasks."""
        return self.folder / "tasks"

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TASK_FOLDER": str(self.tasks)}

    def start(self) -> None:
        """Listen and start it, as `guest attach` does where none listens."""
        path = self.folder / "socket"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(16)
            fd = listener.fileno()
            command = ["setpriv", "--pdeathsig", "KILL", str(self.helper), "hold", str(fd), *self.options]
            self.process = subprocess.Popen(command, pass_fds=[fd], env=self._environment)

    async def open_transport(self) -> PipeTransport:
        process = await asyncio.create_subprocess_exec(
            str(self.helper), "attach", str(self.folder), *self.options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=self._environment,
        )  # fmt: skip
        self.attached.append(PipeTransport(process))
        return self.attached[-1]

    def client(self, settings: HoldSettings = QUIET) -> HoldClient:
        return HoldClient(self.open_transport, settings)

    def cut(self) -> None:
        """Kill the newest `guest attach`, as a lost connection would; returns once it is dead, as the connection
        goes on until then.
        """
        pid = self.attached[-1].process.pid
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def memory(self) -> int:
        """Bytes of memory that the process uses."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def close(self) -> None:
        """Also ends one that a client which came too late has started."""
        self.process.kill()  # it may not be that program yet, by which others are found
        end_program(self.helper)
        self.process.wait()


def end_program(helper: Path) -> None:
    """Kill all processes of a compiled program: clients first, as they start a hold where there is none."""
    for applet in ("attach", "hold"):
        for process in Path("/proc").glob("[0-9]*"):
            # It may end, or be another user's, while it is looked at.
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if applet.encode() in words and str((process / "exe").readlink()).startswith(str(helper)):
                    os.kill(int(process.name), signal.SIGKILL)


class RawPeer:
    """A `guest attach` whose frames the test itself makes. Its end ends the process."""

    def __init__(self, hold: LocalHold) -> None:
        command = [str(hold.helper), "attach", str(hold.folder), *hold.options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with suppress(OSError):
            self._in.close()
        self._out.close()
        self.process.wait()

    def write(self, data: bytes) -> None:
        self._in.write(data)
        self._in.flush()

    def send(self, kind: int, about: int, *parts: bytes) -> None:
        body = b"".join(parts)
        self.write(struct.pack(">IBI", len(body) + 5, kind, about) + body)

    def greet(self, client_id: bytes) -> None:
        self.send(1, 0, b"HOLD\0\1", client_id)
        assert self.receive()[0] == Answer.WELCOME

    def receive(self) -> tuple[int, int, bytes]:
        """Type, id and body of the next frame. Raises EOFError."""
        head = self._out.read(9)
        if len(head) < 9:
            raise EOFError
        length, kind, about = struct.unpack(">IBI", head)
        return kind, about, self._out.read(length - 5)

    def wait_end(self) -> int:
        """The exit code of `guest attach`, once the hold has closed the connection."""
        return self.process.wait(timeout=60)


async def read_until(terminal: HeldTerminal, wanted: bytes) -> bytes:
    """The output up to what is wanted, which it must have."""
    seen = b""
    while wanted not in seen:
        _, data = await terminal.read()
        assert data, seen[-2000:]
        seen += data
    return seen


async def read_rest(terminal: HeldTerminal) -> bytes:
    """The output to the program's end, of which nothing may be missing."""
    seen, at = bytearray(), terminal.offset
    while True:
        offset, data = await terminal.read()
        assert offset == at
        if not data:
            return bytes(seen)
        seen += data
        at += len(data)
