"""The way to a guest's hold: a channel of the control connection that runs `guest attach`."""

from __future__ import annotations

from vmbackend.errors import GuestUnreachable

from .commands import KitPaths
from .connection import Channel, Connection
from .hold.errors import HoldUnsupported
from .hold.transport import OpenTransport, Transport
from .translate import UNREACHABLE, translate_errors

_MAX_REFUSAL = 4096  # bytes of what the helper says if it cannot start


class SSHTransport:
    """A channel on a connection of its own."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self._connection = connection
        self._process = channel.process

    async def read(self, limit: int) -> bytes:
        with translate_errors():
            return await self._process.stdout.read(limit)

    def write(self, data: bytes) -> None:
        with translate_errors():
            self._process.stdin.write(data)

    async def drain(self) -> None:
        with translate_errors():
            await self._process.stdin.drain()

    def spend_time(self, seconds: float) -> float:
        return self._connection.budget.spend_time(seconds, 0)

    async def explain_end(self) -> Exception:
        with translate_errors():
            said = await self._process.stderr.read(_MAX_REFUSAL)
        if said.startswith(b"guest: no such applet"):
            return HoldUnsupported("The machine's kit has no terminal service: it has one after its next start.")
        return GuestUnreachable(UNREACHABLE)

    async def close(self) -> None:
        await self._connection.close()


def ssh_opener(connection: Connection, kit: KitPaths, buffer_size: int, linger: float) -> OpenTransport:
    """Return an opener of transports on `connection`, which is theirs. `buffer_size` in bytes, `linger` in seconds."""
    line = f"{kit.helper} attach {kit.hold} {buffer_size} {int(linger * 1000)}"

    async def open_transport() -> Transport:
        try:
            return SSHTransport(connection, await connection.open_channel(line))
        except BaseException:
            await connection.close()
            raise

    return open_transport
