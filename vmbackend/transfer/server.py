"""The source's side: a server of SSH in a thread of vmhost, at which other hosts fetch what is offered to them.

A host is let in if something is offered to its key, by the offer's id as its name, and gets one thing: the confined
rsync that sends that folder (`session`). The thread has a loop of its own, so nothing that others send holds up vmhost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from pathlib import Path

import asyncssh

from vmbackend.errors import BackendUnavailable
from vmbackend.guest.ssh_limits import CpuBudget, TotalBudget

from .clients import Clients
from .offers import OFFER_ID, Offer, read_public_key
from .session import Client
from .ssh import ALGORITHMS, ServerConnection

logger = logging.getLogger(__name__)

LOGIN_SECONDS = 10
BIND_AGAIN_SECONDS = 10.0
LOOK_SECONDS = 0.5
_START_SECONDS = 10.0
_END_SECONDS = 5.0


class TransferServer:
    """The server of one host. All methods may be called from any thread."""

    def __init__(self, address: str, port: int, key: Path) -> None:
        """`key`: the host's private key, by which others know it."""
        self.address, self.port = address, port
        self._key = key
        self._offers: dict[str, Offer] = {}
        self._total = TotalBudget()
        self._clients = Clients(self._total)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._looked = threading.Event()  # whether the port is free
        self._listening = False
        self._thread = threading.Thread(target=self._run, name="vmhost-transfers", daemon=True)

    def start(self) -> None:
        """Start the thread. If the port is taken it says so, and tries again."""
        self._thread.start()

    def stop(self) -> None:
        """End every transfer and the thread."""
        if self._thread.ident is None:
            return
        self._looked.wait(_START_SECONDS)
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_SECONDS)

    def offer(self, offer_id: str, folder: Path, public_key: str, bytes_per_second: int = 0) -> None:
        """Let the host with this key fetch a folder, until it is withdrawn or this process ends; 0: as fast as it goes.

        The same again changes nothing; another folder, key or rate ends what runs for the former one. Raise
        BackendUnavailable if nobody could fetch it, as the port is taken; ValueError for an id or key of a wrong form.
        """
        if not OFFER_ID.fullmatch(offer_id):
            raise ValueError("The id of an offer is letters, digits, - and _.")
        made = Offer(offer_id, folder, read_public_key(public_key), bytes_per_second, self._total)
        self._looked.wait(_START_SECONDS)
        if not self._listening:
            raise BackendUnavailable(f"This host cannot be reached by others: port {self.port} is not open.")
        former = self._offers.get(offer_id)
        if former is None or not former.is_same(made):
            self._offers[offer_id] = made
            self._end(former)

    def withdraw(self, offer_id: str) -> None:
        """Let nobody fetch it any more, and end what runs for it. Idempotent."""
        self._end(self._offers.pop(offer_id, None))

    def _end(self, offer: Offer | None) -> None:
        if offer is not None and self._loop is not None:
            with suppress(RuntimeError):  # it has ended, and every transfer with it
                self._loop.call_soon_threadsafe(self._clients.end_offer, offer)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            logger.exception("files of workspaces cannot be sent to other hosts any more")
        finally:
            self._listening = False
            self._looked.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        options = await self._options()
        server = await self._listen(options)
        try:
            while not self._ended.is_set():
                self._clients.end_idle()
                await self._pause(LOOK_SECONDS)
        finally:
            if server is not None:
                server.close()
            await self._end_all()

    async def _end_all(self) -> None:
        """End every connection, and wait for what ran for them."""
        self._clients.end_all()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=_END_SECONDS)

    async def _listen(self, options: asyncssh.SSHServerConnectionOptions) -> asyncio.Server | None:
        """Return the server, once the port is free; None if this ended first."""
        loop = asyncio.get_running_loop()
        while not self._ended.is_set():
            try:
                server = await loop.create_server(
                    lambda: ServerConnection(loop, options, CpuBudget(self._total)), self.address, self.port
                )
            except OSError as error:
                if not self._looked.is_set():
                    logger.error("no workspace moves from here: port %d of %s: %s", self.port, self.address, error)
                self._looked.set()
                await self._pause(BIND_AGAIN_SECONDS)
                continue
            self.port = server.sockets[0].getsockname()[1]
            self._listening = True
            self._looked.set()
            return server
        return None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    async def _options(self) -> asyncssh.SSHServerConnectionOptions:
        made: asyncssh.SSHServerConnectionOptions = await asyncssh.SSHServerConnectionOptions.construct(
            **ALGORITHMS_OF_SERVER,
            server_factory=lambda: Client(self._offers, self._clients),
            server_host_keys=[str(self._key)],
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=15,
            keepalive_count_max=3,
            **_REFUSED,
        )
        return made


# The keys of the server say their algorithm.
ALGORITHMS_OF_SERVER = {name: value for name, value in ALGORITHMS.items() if name != "server_host_key_algs"}
_REFUSED = {
    "password_auth": False,
    "kbdint_auth": False,
    "host_based_auth": False,
    "gss_host": None,
    "allow_pty": False,
    "line_editor": False,
    "allow_scp": False,
    "agent_forwarding": False,
    "x11_forwarding": False,
    "send_server_host_keys": False,
}
