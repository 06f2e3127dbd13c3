"""The target's side: fetches a folder that another host offers.

The source is not trusted: rsync's receiving end is confined to the one folder, the source must prove its key, and what
it has written is looked at all the time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import asyncssh

from vmbackend.errors import BackendUnavailable, DeadlineExceeded, TransferRefused

from .folders import FolderLimits, measure_folder, prepare_folder, take_over
from .offers import Rate, read_public_key
from .processes import ConfinedProcess, confined_process
from .rsync import receiving_end
from .ssh import PACKET, TARGET_WINDOW, Bytes, ClientConnection, connect

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
LOOK_SECONDS = 0.1
IDLE_SECONDS = 150.0
_TOO_LONG = os.strerror(errno.EFBIG)  # what a write beyond the limit of a file's length ends with
# What rsync says besides the content of files.
_SPOKEN_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class TransferSource:
    """Another host: its private address, the port of its server of transfers, the public line of its key."""

    address: str
    port: int
    public_key: str


class _Session(Bytes, asyncssh.SSHClientSession[bytes]):
    """The channel to the source's rsync."""


@dataclass(slots=True)
class _Fetch:
    """One call of `fetch_folder`."""

    into: Path
    rate: Rate
    limits: FolderLimits
    deadline: float
    on_progress: Callable[[int], None]
    give_up: Callable[[], bool]
    received: int = 0
    active_at: float = 0.0

    async def run(self, source: TransferSource, key: Path, offer_id: str) -> None:
        """Receive, until it is complete or must end. Raise BackendError."""
        receiving = asyncio.create_task(self._receive(source, key, offer_id))
        try:
            while not receiving.done():
                self._look()
                await asyncio.wait([receiving], timeout=LOOK_SECONDS)
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        receiving.result()

    def _look(self) -> None:
        if self.give_up():
            raise DeadlineExceeded("Fetching the files was given up.")
        if time.monotonic() >= self.deadline:
            raise DeadlineExceeded("Fetching the files took longer than allowed.")
        if self.active_at and time.monotonic() - self.active_at > IDLE_SECONDS:
            raise BackendUnavailable("The source sends nothing any more.")
        self.on_progress(measure_folder(self.into, self.limits))

    async def _receive(self, source: TransferSource, key: Path, offer_id: str) -> None:
        async with _opened(source, key, offer_id) as session:
            self.active_at = time.monotonic()
            argv, confinement = receiving_end(self.into)
            most = self.limits.max_file_bytes
            async with confined_process(argv, confinement, max_file_bytes=most) as process:
                answering = asyncio.create_task(self._answer(process, session))
                try:
                    await self._pass_on(session, process)
                    code = await process.wait()
                finally:
                    answering.cancel()
                    await asyncio.gather(answering, return_exceptions=True)
                said = await process.errors() if code else ""
        if code:
            self._raise_failure(code, said)

    async def _pass_on(self, session: _Session, process: ConfinedProcess) -> None:
        while data := await session.read():
            self.received += len(data)
            if self.received > self.limits.max_bytes + _SPOKEN_BYTES:
                raise TransferRefused("The source sent more than was expected.")
            await self.rate.admit(len(data))
            if not await process.write(data):
                return
            self.active_at = time.monotonic()
        process.end_input()

    async def _answer(self, process: ConfinedProcess, session: _Session) -> None:
        """Pass on what the receiving end says; without the source it ends by itself."""
        try:
            while data := await process.read():
                await session.write(data)
                self.active_at = time.monotonic()
            session.end_output()
        except OSError:
            process.end_input()

    def _raise_failure(self, code: int, said: str) -> None:
        logger.warning("rsync, which received files, ended with %d: %s", code, said)
        measure_folder(self.into, self.limits)
        if _TOO_LONG in said:
            raise TransferRefused("The source sent a longer file than was expected.")
        raise BackendUnavailable("The files did not arrive whole; what did is kept.")


@asynccontextmanager
async def _opened(source: TransferSource, key: Path, offer_id: str) -> AsyncIterator[_Session]:
    """Yield the channel of a connection that ends with the block. Raise BackendUnavailable, TransferRefused."""
    connection: ClientConnection | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await _connect(source, key, offer_id)
            _, made = await connection.create_session(
                _Session, "send", encoding=None, window=TARGET_WINDOW, max_pktsize=PACKET
            )
        session = cast("_Session", made)
        if not session.takes_long_packets():
            raise TransferRefused("The source takes short packets only.")
        yield session
    except asyncssh.HostKeyNotVerifiable as error:
        raise TransferRefused("The source has another key than the host that it should be.") from error
    except asyncssh.PermissionDenied as error:
        raise TransferRefused("The source does not offer these files to this host.") from error
    except (asyncssh.Error, OSError, EOFError, ValueError, AssertionError, AttributeError) as error:
        # The last three are asyncssh's for what a source says that is none of the protocol.
        raise BackendUnavailable("The source cannot be reached, or ended the connection.") from error
    finally:
        if connection is not None:
            connection.abort()
            await connection.wait_closed()


async def _connect(source: TransferSource, key: Path, offer_id: str) -> ClientConnection:
    try:
        known = read_public_key(source.public_key)
    except ValueError as error:
        raise TransferRefused("The source has no key of a host.") from error
    return await connect(
        source.address,
        source.port,
        username=offer_id,
        client_keys=[str(key)],
        known_hosts=([known], [], []),
        preferred_auth="publickey",
        # The host user's SSH configuration and agent are for nothing here.
        config=None,
        agent_path=None,
        keepalive_interval=15,
        keepalive_count_max=3,
    )


def fetch_folder(
    source: TransferSource,
    key: Path,
    offer_id: str,
    into: Path,
    *,
    deadline: float,
    max_bytes: int,
    max_file_bytes: int | None = None,
    bytes_per_second: int = 0,
    on_progress: Callable[[int], None] = lambda taken: None,
    give_up: Callable[[], bool] = lambda: False,
) -> None:
    """Fetch a folder that the source offers to this host's key, into a folder that holds nothing but what an earlier
    call has left. Afterwards files and folders are this process's alone, and their times are those of the source.

    `deadline`: time.monotonic(). `max_bytes`: of all files on the disk; `max_file_bytes`: of one with its holes, by
    default the same. `on_progress` is called about every 0.1 s with the bytes that the folder takes on the disk,
    `give_up` as often; neither must wait.

    Raise BackendUnavailable (connection or source lost: the next call sends the rest), TransferRefused (the source has
    another key, does not offer this, or sends what is not allowed: the folder is to be removed), DeadlineExceeded
    (also if given up). Whatever is raised, nothing writes there any more.
    """
    limits = FolderLimits(max_bytes, max_file_bytes or max_bytes)
    prepare_folder(into)
    fetch = _Fetch(into, Rate(bytes_per_second), limits, deadline, on_progress, give_up)
    asyncio.run(fetch.run(source, key, offer_id))
    take_over(into, limits)
    on_progress(measure_folder(into, limits))
