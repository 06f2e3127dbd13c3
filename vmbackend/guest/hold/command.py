"""Commands that run to their end, started by the guest's hold: no process of the SSH server for each of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmbackend.errors import BackendError, GuestCommandInvalid
from vmbackend.guest.buffers import BoundedBuffer

from .errors import HoldUnsupported, RequestUnknown, TerminalLimit
from .frames import Answer, Fields, GuestGarbage, Request, number, text, texts
from .link import HoldLink, LinkOpener, Receive

MAX_WORDS = 4096
MAX_PATH_BYTES = 4096
MAX_MS = (1 << 32) - 1
_MAX_ID = 1 << 32
# After a hold could not be reached or does not know commands, it is not asked again for as long.
AVOID_SECONDS = 60.0


class NotStarted(Exception):
    """The hold did not get the command, or has refused it: it can be run in another way."""


@dataclass(frozen=True, slots=True)
class CommandStart:
    """The command to run: words, variables, working directory (None: the image's, or the user's home) and user (None:
    the image's).
    """

    words: Sequence[str]
    env: Mapping[str, str]
    working_dir: str | None
    user: str | None

    def encode(self) -> bytes:
        """Return the last fields of RUN. Raise NotStarted for what they cannot have.

        The arguments were checked by `guest.commands.build_command`.
        """
        variables = [f"{name}={value}" for name, value in self.env.items()]
        options = (self.user, self.working_dir)
        if self.working_dir == "" or max(len(self.words), len(variables)) > MAX_WORDS:
            raise NotStarted
        if any(len(each.encode("utf-8", "replace")) > MAX_PATH_BYTES for each in options if each):
            raise NotStarted
        try:
            return text(self.user or "") + text(self.working_dir or "") + texts(self.words) + texts(variables)
        except UnicodeError as error:
            raise NotStarted from error


@dataclass(frozen=True, slots=True)
class _Running:
    """The outputs of a command, by their numbers: 1 and 2."""

    outputs: tuple[BoundedBuffer, BoundedBuffer]

    def append(self, fields: Fields) -> None:
        """Raise GuestGarbage for more than was asked for."""
        which, data = fields.number(1), fields.rest()
        if which not in (1, 2) or not data:
            raise GuestGarbage
        buffer = self.outputs[which - 1]
        buffer.append(data)
        if buffer.truncated:
            raise GuestGarbage


class HeldCommands:
    """The commands of one client of a hold. Belongs to its event loop."""

    def __init__(self, client: LinkOpener) -> None:
        self._client = client
        self._running: dict[int, _Running] = {}
        self._last = 0
        self._avoided_until = float("-inf")

    async def run(
        self, start: CommandStart, out: BoundedBuffer, err: BoundedBuffer, *, timeout: float, slack: float, limit: int
    ) -> int:
        """Run a command to its end; return its exit code, 124 if the guest ended it at `timeout` seconds.

        At most `limit` bytes of each output are sent; `truncated` of a buffer is set if there were more. Raises
        NotStarted; GuestUnreachable: the connection was lost, and the command is not known to have run or to have
        ended; TimeoutError: the guest did not answer `slack` seconds after the timeout. A caller that does not wait for
        the end (cancelled, TimeoutError) ends the command.
        """
        encoded = start.encode()
        link = await self._answering_link()
        self._last = id = (self._last + 1) % _MAX_ID
        self._running[id] = _Running((out, err))
        head = number(id, 4) + number(_milliseconds(timeout), 4) + number(min(limit, _MAX_ID - 1), 4)
        try:
            async with asyncio.timeout(timeout + slack):
                code, out.truncated = await link.request(Request.RUN, head, encoded, read=_read_end)
            return code
        except (RequestUnknown, HoldUnsupported, TerminalLimit, GuestCommandInvalid) as refusal:
            if out.data or err.data:
                raise GuestGarbage from refusal
            self._avoid(refusal)
            raise NotStarted from refusal
        except BaseException:
            link.post(Request.STOP, number(id, 4))
            raise
        finally:
            del self._running[id]

    def receiver(self, otherwise: Receive) -> Receive:
        """Return a receiver of what a guest sends about commands; `otherwise` takes the rest."""

        def receive(link: HoldLink, kind: int, about: int, fields: Fields) -> None:
            if kind != Answer.WRITTEN:
                otherwise(link, kind, about, fields)
                return
            running = self._running.get(about)
            if running is not None:  # else it was under way when the command was given up
                running.append(fields)

        return receive

    async def _answering_link(self) -> HoldLink:
        """Raise NotStarted."""
        if time.monotonic() < self._avoided_until:
            raise NotStarted
        try:
            return await self._client.answering_link()
        except BackendError as error:
            self._avoid(error)
            raise NotStarted from error

    def _avoid(self, error: BackendError) -> None:
        if not isinstance(error, (TerminalLimit, GuestCommandInvalid)):
            self._avoided_until = time.monotonic() + AVOID_SECONDS


def _milliseconds(seconds: float) -> int:
    return max(1, min(math.ceil(seconds * 1000), MAX_MS))


def _read_end(fields: Fields) -> tuple[int, bool]:
    """Return the exit code, and whether output was dropped."""
    code, dropped = fields.number(1), fields.number(1)
    fields.require_end()
    if dropped > 1:
        raise GuestGarbage
    return code, bool(dropped)
