"""One client of a source: its login, and the one thing that it may run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, cast

import asyncssh

from vmbackend.errors import BackendError

from .clients import Clients
from .offers import Offer
from .processes import ConfinedProcess, confined_process
from .rsync import sending_end
from .ssh import PACKET, SOURCE_WINDOW, Bytes, ServerConnection, refuse_requests

logger = logging.getLogger(__name__)


class Client(asyncssh.SSHServer):
    """One connection, as asyncssh's server asks about it. Everything that is not answered here is refused."""

    def __init__(self, offers: Mapping[str, Offer], clients: Clients) -> None:
        self._offers = offers
        self._clients = clients
        self._offer: Offer | None = None
        self._session: SendingSession | None = None
        self._logged_in_at = 0.0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = cast(ServerConnection, conn)
        budget = self._clients.admit(self, str(conn.get_extra_info("peername", ("",))[0]))
        if budget is None:
            conn.abort()
        else:
            self._connection.charge(budget)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.forget(self)

    def abort(self) -> None:
        """End the connection, and what runs for it."""
        self._clients.forget(self)
        self._connection.abort()

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        offer = self._offers.get(username)
        self._offer = offer if offer is not None and offer.key == key else None
        return self._offer is not None

    def auth_completed(self) -> None:
        offer = self._offer
        if offer is None or self._offers.get(offer.id) is not offer:
            self.abort()
            return
        self._logged_in_at = time.monotonic()
        self._connection.charge(offer.budget)
        self._clients.recognize(self, offer)

    def session_requested(self) -> Any:
        """Return the channel of the one session, or False."""
        if self._session is not None or self._offer is None:
            return False
        self._session = SendingSession(self._offer)
        channel: Any = self._connection.create_server_channel(None, "strict", SOURCE_WINDOW, PACKET)
        refuse_requests(channel)
        return channel, self._session

    @property
    def has_begun(self) -> bool:
        """Return whether its transfer was begun and has not ended."""
        return self._session is not None and self._session.is_running

    @property
    def active_at(self) -> float:
        """Return when it last did something (time.monotonic())."""
        return max(self._logged_in_at, self._session.active_at if self._session else 0.0)


class SendingSession(Bytes, asyncssh.SSHServerSession[bytes]):
    """The session that sends a folder, whatever command it is asked for."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self._offer = offer
        self._task: asyncio.Task[None] | None = None
        self.active_at = 0.0

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def exec_requested(self, command: str) -> bool:
        return self.takes_long_packets()

    def session_started(self) -> None:
        self.active_at = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        code = 1
        try:
            code = await self._send_folder()
        except (BackendError, OSError) as error:
            logger.warning("the files of the offer %s were not sent: %s", self._offer.id, error)
        if not self._channel.is_closing():
            self._channel.exit(code)

    async def _send_folder(self) -> int:
        """Return the exit code of rsync."""
        argv, confinement = sending_end(self._offer.folder)
        async with confined_process(argv, confinement) as process:
            asked = asyncio.create_task(self._pass_on(process))
            try:
                while data := await process.read():
                    await self._offer.rate.admit(len(data))
                    await self.write(data)
                    self.active_at = time.monotonic()
                code = await process.wait()
            finally:
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
            if code:
                logger.warning("the offer %s: rsync ended with %d: %s", self._offer.id, code, await process.errors())
        return code & 0xFF

    async def _pass_on(self, process: ConfinedProcess) -> None:
        while (data := await self.read()) and await process.write(data):
            self.active_at = time.monotonic()
        process.end_input()
