"""The guest session over SSH: commands by the kit's helper, files by the kit's sftp-server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from vmbackend.errors import GuestCommandInvalid, GuestKitOutdated, GuestUnreachable

from . import commands, records, search
from .asking import Answer
from .commands import KitPaths, RemoteCommand
from .connection import CommandConnections, Connection, ConnectionSettings
from .held import HeldRunner
from .hold.client import HoldClient, HoldSettings
from .hold.command import CommandStart, NotStarted
from .hold.connections import HeldConnections
from .hold.tasks import HeldTasks
from .hold_channel import ssh_opener
from .output import StreamedOutput, StreamOptions
from .running import run_answering, run_remote
from .session import IMAGE_USER, ExecResult, GuestAddress, SearchTools
from .sftp import FileChannel
from .ssh_files import SSHFiles, started
from .ssh_limits import CpuBudget
from .streamed import stream_remote

SSH_PORT = 22  # of the users' own server
HELPER_TIMEOUT = 30.0  # seconds; the helper itself gives up after 10
TERMINAL_BUFFER = 256 * 1024  # bytes; the guest takes as much memory as there is output


class SSHGuestSession(SSHFiles):
    """One guest over persistent connections: one for files, one for each concurrent command.

    Belongs to the event loop that first uses it.
    """

    def __init__(
        self,
        address: GuestAddress,
        private_key: Path,
        *,
        settings: ConnectionSettings | None = None,
        kit: KitPaths | None = None,
        search_folder: Callable[[], Path] = search.no_folder,
        terminal_buffer: int = TERMINAL_BUFFER,
    ) -> None:
        """`terminal_buffer`: bytes of a terminal's output that the guest keeps, from its next start on."""
        settings = settings or ConnectionSettings()
        budget = CpuBudget()
        # dropbear resets a sixth connection that has not logged in yet.
        self._own = (address, private_key, settings, asyncio.Semaphore(2), budget)
        self._kit = kit or KitPaths()
        self._search_folder = search_folder
        self._terminal_buffer = terminal_buffer
        self._search_tools: SearchTools | None = None
        self._connection = Connection(address, private_key, settings, budget=budget)
        self._commands = CommandConnections(address, private_key, settings, budget)
        self._run = partial(run_remote, self._commands)
        self._files = FileChannel(self._connection, self._kit, settings.request_timeout)
        self._held = HeldRunner(self.open_hold, self._commands.place)

    async def execute(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        timeout: float = 30.0,
        max_output: int = 1 << 20,
        stop_after: tuple[bytes, int] | None = None,
        grace: float = 0.0,
    ) -> ExecResult:
        fields: dict[str, Any] = {"env": env, "working_dir": working_dir, "user": user, "timeout": timeout}
        remote = commands.build_command(self._kit, command, **fields, grace=grace)
        try:
            return await self._execute(remote, stdin, timeout, max_output, reserved=False, stop_after=stop_after)
        except GuestKitOutdated:  # it is killed at once, as it was before the update
            remote = commands.build_command(self._kit, command, **fields)
        return await self._execute(remote, stdin, timeout, max_output, reserved=False, stop_after=stop_after)

    def execute_streamed(self, command: Sequence[str] | str, **options: Unpack[StreamOptions]) -> StreamedOutput:
        return stream_remote(self._commands, self._kit, command, options)

    async def execute_answering(
        self,
        command: Sequence[str],
        *,
        answer: Answer,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        timeout: float = 30.0,
        grace: float = 0.0,
        max_output: int = 1 << 20,
    ) -> ExecResult:
        remote = commands.build_command(
            self._kit, command, env=env, working_dir=working_dir, user=None, timeout=timeout, grace=grace, asks=True
        )
        return started(await run_answering(self._commands, remote, answer, timeout, max_output))

    @property
    def askpass_program(self) -> str:
        return self._kit.askpass

    async def execute_held(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        timeout: float = 30.0,
        max_output: int = 1 << 20,
    ) -> ExecResult:
        remote = commands.build_command(
            self._kit, command, env=env, working_dir=working_dir, user=user or IMAGE_USER, timeout=timeout
        )
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        start = CommandStart(words, env or {}, working_dir, user)
        try:
            return started(await self._held.run(start, timeout, max_output))
        except NotStarted:
            return await self._execute(remote, b"", timeout, max_output, reserved=False)

    async def open_tasks(self) -> HeldTasks:
        return self._held.client.tasks

    async def open_connections(self) -> HeldConnections:
        return self._held.client.connections

    @property
    def busybox(self) -> str:
        return self._kit.busybox

    def open_hold(self, settings: HoldSettings | None = None) -> HoldClient:
        """Return a client of the terminals that the guest keeps. It has a connection of its own and outlives the
        session.
        """
        settings = settings or HoldSettings()
        opener = ssh_opener(Connection(*self._own), self._kit, self._terminal_buffer, settings.linger)
        return HoldClient(opener, settings)

    async def search_tools(self, *, again: bool = False) -> SearchTools:
        if self._search_tools is None or again:
            self._search_tools = await search.bring_tools(self, self._kit, self._search_folder())
        return self._search_tools

    async def find_search_tools(self) -> SearchTools | None:
        return await search.find_tools(self, self._kit, self._search_folder())

    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        try:
            lines = records.ssh_key_file(keys) if enabled else b""
        except ValueError as error:
            raise GuestCommandInvalid(f"An SSH key cannot be used: {error}.") from error
        await self.kit_helper("ssh on" if enabled else "ssh off", lines)

    async def ssh_connections(self) -> int:
        output = await self.kit_helper(f"connections {SSH_PORT}", b"")
        try:
            return int(output)
        except ValueError as error:
            raise GuestUnreachable("The machine did not report its connections.") from error

    async def sync(self) -> None:
        result = await self._run(RemoteCommand(f"{self._kit.busybox} sync", b""), b"", 60.0, 1024, reserved=True)
        if result.exit_code != 0:
            raise GuestUnreachable("The machine did not flush its disk.")

    async def close(self) -> None:
        self._files.reset()
        await self._held.close()
        await self._connection.close()
        await self._commands.close()

    async def kit_helper(self, words: str, stdin: bytes, max_output: int = 4096) -> bytes:
        remote = RemoteCommand(f"{self._kit.helper} {words}", b"")
        result = await self._run(remote, stdin, HELPER_TIMEOUT, max_output, reserved=True)
        failure = commands.start_failure(result.exit_code, result.stderr)
        if failure is not None:
            raise commands.refusal_error(failure)
        if result.exit_code != 0:
            raise GuestUnreachable("The machine did not carry out the request.")
        return result.stdout
