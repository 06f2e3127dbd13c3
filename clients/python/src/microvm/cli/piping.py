"""The standard input of a program in a workspace: sent from a thread, while its output is read."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from threading import Thread

from microvm.errors import ApiError, MicrovmError
from microvm.sync.client import Microvm

PART = 256 << 10  # bytes, of the service
ENDED = "command_ended"


class InputSender:
    """Sends parts to one program. `error`: what kept the input from being sent whole; the program sees its end then."""

    def __init__(self, client: Microvm, workspace: str, command: str, parts: Iterator[bytes]) -> None:
        self._client, self._workspace, self._command = client, workspace, command
        self._parts = parts
        self._offset = 0
        self.error: Exception | None = None
        self._thread = Thread(target=self._send_all, daemon=True)  # it may wait for a terminal at the end

    def start(self) -> None:
        self._thread.start()

    def _send_all(self) -> None:
        try:
            try:
                for part in self._parts:
                    self._send(part)
            except MicrovmError:
                raise
            except Exception as error:
                self.error = error
            self._send(b"", eof=True)
        except MicrovmError as error:
            # A program may end without reading its input.
            if not (isinstance(error, ApiError) and error.code == ENDED):
                self.error = self.error or error

    def _send(self, data: bytes, *, eof: bool = False) -> None:
        """Raises ApiError, ConnectionFailed."""
        end = self._offset + len(data)
        while True:
            taken = self._client.workspaces.send_input(
                self._workspace,
                self._command,
                data[self._offset - end :] if data else b"",
                offset=self._offset,
                eof=eof,
            )
            self._offset = max(self._offset, taken)
            if self._offset >= end:
                return


def parts_of_stdin() -> Iterator[bytes]:
    """As they come. Read without a buffer where there is a file: a thread that waits in one would stop the exit."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        while part := sys.stdin.buffer.read(PART):
            yield part
        return
    while part := os.read(descriptor, PART):
        yield part
