"""A git host on the simulated internet: private repositories over HTTP for a password, over SSH for a key."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tests.sandboxes.level.git_server import GitServer, running
from tests.vm.outside import Outside

USER, PASSWORD = "ada", "s3cret-of-ada"  # of these tests
CLONE_NEWNET = 0x40000000
SERVICES = ("git-upload-pack", "git-receive-pack")


@dataclass(frozen=True)
class GitHost:
    """`folder` has the repositories; `key` is the private key that its SSH server takes."""

    folder: Path
    http_url: str
    ssh_url: str
    key: str

    @property
    def password_auth(self) -> dict[str, str]:
        return {"type": "token", "username": USER, "password": PASSWORD}

    @property
    def key_auth(self) -> dict[str, str]:
        return {"type": "ssh", "sshKey": self.key}

    def add_repository(self, name: str, files: dict[str, str]) -> None:
        """With one commit on `main`, of programs."""
        bare, work = self.folder / name, self.folder / f"{name}.work"
        git(self.folder, "init", "-q", "--bare", "--initial-branch=main", str(bare))
        git(bare, "config", "http.receivepack", "true")
        git(self.folder, "init", "-q", "--initial-branch=main", str(work))
        for path, content in files.items():
            (work / path).write_text(content)
            (work / path).chmod(0o755)
        git(work, "add", ".")
        git(work, "commit", "-qm", "first")
        git(work, "push", "-q", str(bare), "main")

    def head(self, name: str) -> str:
        """The commit of `main`."""
        return git(self.folder / name, "rev-parse", "main")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Bob", "-c", "user.email=bob@example.com"]
    environment = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *who, *words], cwd=folder, env=environment, capture_output=True, check=True)
    return done.stdout.decode().strip()


@contextmanager
def git_host(internet: Outside, folder: Path) -> Iterator[GitHost]:
    """On the simulated internet's address, until the end of the block."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    with (
        running(GitServer(folder, USER, PASSWORD, listen_outside(internet))) as http,
        _ssh_server(listen_outside(internet), folder, key) as port,
    ):
        yield GitHost(
            folder, http.url, f"ssh://git@{internet.address}:{port}{folder}", key.export_private_key().decode()
        )


def listen_outside(internet: Outside) -> socket.socket:
    """A listening socket of its namespace, which this process serves: a thread of its own goes there to make it."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{internet.pid}/ns/net").open() as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        listener = socket.socket()
        listener.bind((internet.address, 0))
        listener.listen(16)
        made.append(listener)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


@contextmanager
def _ssh_server(listener: socket.socket, folder: Path, key: asyncssh.SSHKey) -> Iterator[int]:
    """For the user `git` with the key, and git's commands in the folder. Yields its port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def serve() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            sock=listener,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=asyncssh.import_authorized_keys(key.export_public_key().decode()),
            process_factory=lambda process: _run_service(process, folder),
            encoding=None,
        )

    async def end(server: asyncssh.SSHAcceptor) -> None:
        server.close()
        await server.wait_closed()

    try:
        port = listener.getsockname()[1]
        server = asyncio.run_coroutine_threadsafe(serve(), loop).result(120)
        yield port
        asyncio.run_coroutine_threadsafe(end(server), loop).result(120)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _run_service(process: asyncssh.SSHServerProcess[bytes], folder: Path) -> None:
    service, path = shlex.split(process.command or "")
    assert service in SERVICES
    assert Path(path).is_relative_to(folder)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(service, path, stdin=pipe, stdout=pipe, stderr=pipe)
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    code = await child.wait()
    await process.stdout.drain()
    process.exit(code)
    await process.wait_closed()
