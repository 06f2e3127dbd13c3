"""One open socket: its messages, and what it is sent."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sandboxes.sockets import messages
from sandboxes.sockets.messages import MessageInvalid, RequestId
from sandboxes.sockets.sandbox import SandboxTerminals
from sandboxes.sockets.terminal import SharedTerminal
from sandboxes.sockets.watches import SocketWatches
from vmbackend.errors import BackendError, GuestCommandInvalid
from vmbackend.guest.hold import TerminalEntry

# Bytes of messages that were not sent yet: a client that asks and does not read waits.
MAX_UNSENT = 256 * 1024
# Messages of watches that are sent before output has its turn again.
EVENTS_AT_ONCE = 32
SendData = Callable[[str | bytes], Awaitable[None]]


class TerminalSocket:
    """A socket of terminals. Belongs to one event loop. `ended` has the reason once the sandbox does not run any
    more.
    """

    def __init__(self, sandbox: SandboxTerminals) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cut = False  # by the end of this process
        self._sandbox = sandbox
        self._attached: dict[int, SharedTerminal] = {}
        self._watches = SocketWatches(sandbox, self.wake)
        self._unsent: deque[str] = deque()
        self._unsent_size = 0
        self._awake = asyncio.Event()
        self._sent = asyncio.Event()

    def wake(self) -> None:
        self._awake.set()

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    async def serve_message(self, data: str | bytes) -> None:
        """Do what one message asks for. Errors are sent; none ends the socket."""
        request_id: RequestId = None
        about = "terminal_error"
        try:
            if isinstance(data, bytes):
                message = messages.parse_binary(data)
            else:
                message, request_id = messages.parse_text(data)
            await self._handle(message, request_id)
        except MessageInvalid as error:
            about, request_id = error.about, error.request_id or request_id
            self._post_error(error.code, error.message, request_id, about)
        except BackendError as error:
            self._post_error(_code(error), error.message, request_id)
        while self._unsent_size > MAX_UNSENT or self._watches.is_full:
            self._sent.clear()
            await self._sent.wait()

    async def wait_turn(self) -> None:
        """Wait after a message: other sockets are served before the next one, also of many that came at once."""
        await asyncio.sleep(self._sandbox.pace.next_wait())

    def post(self, kind: str, request_id: RequestId = None, **fields: Any) -> None:
        """Queue a message."""
        found = {"type": kind, **fields, **({} if request_id is None else {"requestId": request_id})}
        text = json.dumps(found)
        self._unsent.append(text)
        self._unsent_size += len(text)
        self._awake.set()

    async def send_forever(self, send: SendData) -> None:
        """Send messages first, then some of watches, then output, a piece of each terminal in turn."""
        while True:
            self._awake.clear()
            while self._unsent:
                text = self._unsent.popleft()
                await send(text)
                self._unsent_size -= len(text)
                self._sent.set()
            for _ in range(EVENTS_AT_ONCE):
                if (event := self._watches.next_message()) is None:
                    break
                self._awake.set()  # there may be more
                await send(json.dumps(event))
                self._sent.set()
            for terminal in list(self._attached.values()):
                if not self._unsent:
                    await self._send_output(terminal, send)
            if not self._awake.is_set():
                await self._awake.wait()

    async def leave(self) -> None:
        """Detach from everything; terminals go on, watches end."""
        await self._watches.leave()
        for terminal in self._attached.values():
            terminal.detach(self)
        left, self._attached = list(self._attached.values()), {}
        if len(self._sandbox.sockets) > 1 and not self.cut:  # else all of them are released together
            for terminal in left:
                await self._sandbox.release_unread(terminal)

    async def _send_output(self, terminal: SharedTerminal, send: SendData) -> None:
        place = terminal.places.get(self)
        if place is None:
            self._attached.pop(terminal.id, None)
            return
        if place.waits:
            return
        if skipped := place.skip_gap(terminal.output):
            self._post_attached(terminal, skipped)
            return
        data = terminal.next_piece(self)
        if data:
            self._awake.set()  # there may be more
            await send(bytes((terminal.id,)) + data)
        elif terminal.over and place.offset == terminal.output.end and not place.end_sent:
            place.end_sent = True
            self._post_end(terminal)

    def _post_end(self, terminal: SharedTerminal) -> None:
        if terminal.exit is not None:
            exit = terminal.exit
            self.post("terminal_exited", terminalId=terminal.id, exitCode=exit.exit_code, signal=exit.signal)
        else:
            self._post_error("terminal_not_found", "The terminal is gone.", None, terminalId=terminal.id)
            self._detach(terminal)

    def _post_attached(self, terminal: SharedTerminal, skipped: int, request_id: RequestId = None) -> None:
        cols, rows = terminal.size
        offset = terminal.places[self].offset
        ids = {"terminalId": terminal.id, "cols": cols, "rows": rows}
        self.post("terminal_attached", request_id, **ids, offset=offset, skipped=skipped)

    def _post_error(
        self, code: str, message: str, request_id: RequestId, about: str = "terminal_error", **fields: Any
    ) -> None:
        self.post(about, request_id, code=code, message=message, **fields)

    async def _handle(self, message: messages.Message, request_id: RequestId) -> None:
        if isinstance(message, messages.Input):
            await self._input(message)
        elif isinstance(message, messages.Acknowledge):
            self._acknowledge(message)
        elif isinstance(message, messages.Watch | messages.StopWatch):
            await self._watch(message, request_id)
        else:
            handler: Any = self._HANDLERS[type(message)]
            await handler(self, message, request_id)

    async def _watch(self, message: messages.Watch | messages.StopWatch, request_id: RequestId) -> None:
        if isinstance(message, messages.Watch):
            self._watches.start(message, request_id)
        else:
            await self._watches.stop(message, request_id)

    async def _input(self, message: messages.Input) -> None:
        terminal = await self._named(message.id)
        if terminal.over:
            raise MessageInvalid("terminal_ended", "The terminal's program has ended.")
        if message.data:
            id = terminal.id
            self._sandbox.require_input_room(len(message.data))
            terminal.write(
                message.data, lambda error: self._post_error(_code(error), error.message, None, terminalId=id)
            )

    def _acknowledge(self, message: messages.Acknowledge) -> None:
        terminal = self._attached.get(message.id)
        if terminal is None or self not in terminal.places:
            raise MessageInvalid("terminal_not_found", "The terminal is not attached to this socket.")
        terminal.places[self].acknowledge(message.count)
        self._awake.set()

    async def _create(self, message: messages.Create, request_id: RequestId) -> None:
        terminal = await self._sandbox.create(message)
        self.post("terminal_created", request_id, terminalId=terminal.id, cols=message.cols, rows=message.rows)
        self._attach(terminal, 0, ack=message.ack)

    async def _list(self, message: messages.ListTerminals, request_id: RequestId) -> None:
        self.post("terminal_list", request_id, terminals=[_shown(entry) for entry in await self._sandbox.list()])

    async def _attach_at(self, message: messages.Attach, request_id: RequestId) -> None:
        terminal = await self._sandbox.open(message.id)
        if message.offset > terminal.output.end:
            raise MessageInvalid("validation_error", "offset: the terminal has not written that many bytes.")
        self._post_attached(terminal, self._attach(terminal, message.offset, ack=message.ack), request_id)

    async def _get_state(self, message: messages.GetState, request_id: RequestId) -> None:
        await self._sandbox.open(message.id)  # which may take long
        async with self._sandbox.states:
            terminal = self._attached[message.id] = await self._sandbox.open(message.id)
            ack = message.ack or self._has_ack(terminal)
            state, offset = await terminal.state(self, message.lines, ack=ack)
        if self not in terminal.places:
            raise MessageInvalid("terminal_not_found", "The terminal was closed.")
        cols, rows = terminal.size
        self.post(
            "terminal_state", request_id, terminalId=terminal.id, cols=cols, rows=rows, offset=offset,
            state=base64.b64encode(state).decode(),
        )  # fmt: skip
        terminal.resume(self)
        if not terminal.over:
            terminal.repaint()

    async def _resize(self, message: messages.Resize, request_id: RequestId) -> None:
        terminal = await self._named(message.id)
        await terminal.resize(message.cols, message.rows)
        self.post("terminal_resized", request_id, terminalId=message.id, cols=message.cols, rows=message.rows)

    async def _close(self, message: messages.Close, request_id: RequestId) -> None:
        terminal = await self._sandbox.close_terminal(message.id)
        others = [reader for reader in terminal.places if isinstance(reader, TerminalSocket) and reader is not self]
        for other in others:
            other.post("terminal_closed", terminalId=message.id)
        for reader in (*others, self):
            reader._detach(terminal)
        self.post("terminal_closed", request_id, terminalId=message.id)

    async def _named(self, id: int) -> SharedTerminal:
        """Return a terminal to which this socket is attached from now on, if it was not before. Raises
        TerminalNotFound.
        """
        terminal = self._attached.get(id)
        if terminal is not None and not terminal.gone and self in terminal.places:
            return terminal
        terminal = await self._sandbox.open(id)
        self._post_attached(terminal, self._attach(terminal, terminal.output.end, ack=False))
        return terminal

    def _attach(self, terminal: SharedTerminal, offset: int, *, ack: bool) -> int:
        self._attached[terminal.id] = terminal
        return terminal.attach(self, offset, ack=ack)

    def _detach(self, terminal: SharedTerminal) -> None:
        terminal.detach(self)
        if self._attached.get(terminal.id) is terminal:
            del self._attached[terminal.id]

    def _has_ack(self, terminal: SharedTerminal) -> bool:
        place = terminal.places.get(self)
        return place is not None and place.unacknowledged is not None

    _HANDLERS = {
        messages.Create: _create,
        messages.ListTerminals: _list,
        messages.Attach: _attach_at,
        messages.GetState: _get_state,
        messages.Resize: _resize,
        messages.Close: _close,
    }


def _code(error: BackendError) -> str:
    return "command_invalid" if isinstance(error, GuestCommandInvalid) else error.code


def _shown(entry: TerminalEntry) -> dict[str, Any]:
    """Return an entry of `terminal_list`. `start`: the oldest byte that is kept."""
    exit = entry.exit
    return {
        "terminalId": entry.id, "cols": entry.cols, "rows": entry.rows, "start": entry.start, "offset": entry.end,
        "running": exit is None, "exitCode": exit.exit_code if exit else None, "signal": exit.signal if exit else None,
    }  # fmt: skip
