"""One open socket: its messages, and what it is sent."""

from __future__ import annotations

import base64
import json
from typing import Any

from sandboxes.sockets import messages
from sandboxes.sockets.messages import MessageInvalid, RequestId
from sandboxes.sockets.watches import SocketWatches
from vmbackend.errors import BackendError, GuestCommandInvalid
from vmbackend.guest.hold import TerminalEntry
from workspaces.data_plane.sockets.machine import MachineTerminals
from workspaces.data_plane.sockets.output import OutputPlace
from workspaces.data_plane.sockets.socket import MachineSocket
from workspaces.data_plane.sockets.terminal import SharedTerminal


class TerminalSocket(MachineSocket):
    """A socket of terminals. Belongs to one event loop. `ended` has the reason once the sandbox does not run any
    more.
    """

    def __init__(self, machine: MachineTerminals) -> None:
        super().__init__(machine)
        self._watches = SocketWatches(machine, self.wake)

    def begin(self) -> None:
        """Queue what its client is told first."""
        self.post("connected")

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
        await self.wait_sent()

    def post(self, kind: str, request_id: RequestId = None, **fields: Any) -> None:
        """Queue a message."""
        found = {"type": kind, **fields, **({} if request_id is None else {"requestId": request_id})}
        self.post_text(json.dumps(found))

    async def leave(self) -> None:
        """Detach from everything; terminals go on, watches end."""
        await self._watches.leave()
        await super().leave()

    @property
    def has_many_events(self) -> bool:
        return self._watches.is_full

    def next_event(self) -> str | None:
        event = self._watches.next_message()
        return None if event is None else json.dumps(event)

    def tell_gap(self, terminal: SharedTerminal, place: OutputPlace, skipped: int) -> None:
        self._post_attached(terminal, skipped)

    def tell_end(self, terminal: SharedTerminal) -> None:
        if terminal.exit is not None:
            exit = terminal.exit
            self.post("terminal_exited", terminalId=terminal.id, exitCode=exit.exit_code, signal=exit.signal)
        else:
            self._post_error("terminal_not_found", "The terminal is gone.", None, terminalId=terminal.id)
            self.detach(terminal)

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
            self.machine.require_input_room(len(message.data))
            terminal.write(
                message.data, lambda error: self._post_error(_code(error), error.message, None, terminalId=id)
            )

    def _acknowledge(self, message: messages.Acknowledge) -> None:
        terminal = self.attached.get(message.id)
        if terminal is None or self not in terminal.places:
            raise MessageInvalid("terminal_not_found", "The terminal is not attached to this socket.")
        terminal.places[self].acknowledge(message.count)
        self.wake()

    async def _create(self, message: messages.Create, request_id: RequestId) -> None:
        terminal = await self.machine.create(message.argv, (message.cols, message.rows), message.cwd)
        self.post("terminal_created", request_id, terminalId=terminal.id, cols=message.cols, rows=message.rows)
        self.attach(terminal, 0, ack=message.ack)

    async def _list(self, message: messages.ListTerminals, request_id: RequestId) -> None:
        self.post("terminal_list", request_id, terminals=[_shown(entry) for entry in await self.machine.list()])

    async def _attach_at(self, message: messages.Attach, request_id: RequestId) -> None:
        terminal = await self.machine.open(message.id)
        if message.offset > terminal.output.end:
            raise MessageInvalid("validation_error", "offset: the terminal has not written that many bytes.")
        self._post_attached(terminal, self.attach(terminal, message.offset, ack=message.ack), request_id)

    async def _get_state(self, message: messages.GetState, request_id: RequestId) -> None:
        await self.machine.open(message.id)  # which may take long
        async with self.machine.states:
            terminal = self.attached[message.id] = await self.machine.open(message.id)
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
        terminal = await self.machine.close_terminal(message.id)
        others = [reader for reader in terminal.places if isinstance(reader, TerminalSocket) and reader is not self]
        for other in others:
            other.post("terminal_closed", terminalId=message.id)
        for reader in (*others, self):
            reader.detach(terminal)
        self.post("terminal_closed", request_id, terminalId=message.id)

    async def _named(self, id: int) -> SharedTerminal:
        """Return a terminal to which this socket is attached from now on, if it was not before. Raises
        TerminalNotFound.
        """
        terminal = self.attached.get(id)
        if terminal is not None and not terminal.gone and self in terminal.places:
            return terminal
        terminal = await self.machine.open(id)
        self._post_attached(terminal, self.attach(terminal, terminal.output.end, ack=False))
        return terminal

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
