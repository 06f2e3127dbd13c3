"""Views of `/r/terminals` (wire contract, section 4b, "Terminals, watchers")."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from common.errors import NotFound
from common.openapi import refused
from common.requests import validated_query
from common.responses import respond
from vmbackend.guest.hold import HoldClient
from workspaces.data_plane.json_bodies import read_body
from workspaces.runtime.base import RuntimeRequest, RuntimeViewSet
from workspaces.runtime.held import UNKNOWN_TERMINAL, TooManyTerminals, with_held
from workspaces.runtime.terminals import services
from workspaces.runtime.terminals.serializers import (
    ScrollbackQuery,
    ScrollbackResponse,
    TerminalRemovedResponse,
    TerminalRequest,
    TerminalResponse,
    TerminalsResponse,
)

T = TypeVar("T")
CALL_SECONDS = 60.0
MAX_ID = 255
STOPPED = "`vm_not_running`; `guest_kit_outdated`: the machine needs a restart for this"
ONE = refused({404: "`not_found`: there is no such terminal", 409: STOPPED})


class TerminalsViewSet(RuntimeViewSet):
    """Terminals, which go on without those who look at them. Their bytes go over the socket `{url}/ws`."""

    @extend_schema(
        request=TerminalRequest,
        responses={
            200: TerminalResponse,
            **refused(
                {
                    400: "`validation_error`; `command_invalid`: the machine cannot start it",
                    409: f"{STOPPED}; `terminal_limit`",
                }
            ),
        },
    )
    async def create(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Start a program on a terminal of its own. Where there are as many as may be, an ended one makes room."""
        data = await read_body(TerminalRequest, request)
        wanted = services.WantedTerminal(data["cmd"], data["cols"], data["rows"], data["scrollback_size"])
        made = await self._call(partial(services.create_terminal, wanted=wanted))
        return Response(TerminalResponse(made).data)

    @extend_schema(responses={200: TerminalsResponse, **refused({409: STOPPED})})
    async def list(self, request: RuntimeRequest, named_id: str = "") -> Response:
        """Return the terminals of the workspace, those of its sandbox's sockets included."""
        return respond(TerminalsResponse, terminals=await self._call(services.list_terminals))

    @extend_schema(responses={200: TerminalRemovedResponse, **ONE})
    async def remove(self, request: RuntimeRequest, terminal_id: str, named_id: str = "") -> Response:
        """Kill a terminal with all of its processes, and forget it. Sockets are told."""
        number = _terminal_number(terminal_id)
        await self._call(lambda held: held.close_terminal(number))
        return respond(TerminalRemovedResponse, terminal_id=str(number))

    @extend_schema(parameters=[ScrollbackQuery], responses={200: ScrollbackResponse, **ONE})
    async def scrollback(self, request: RuntimeRequest, terminal_id: str, named_id: str = "") -> Response:
        """Return the end of a terminal's output as it is now, byte for byte."""
        number, query = _terminal_number(terminal_id), validated_query(ScrollbackQuery, request)
        terminal, data = await self._call(partial(services.read_scrollback, id=number, limit=query["bytes"]))
        return respond(
            ScrollbackResponse,
            scrollback=b64encode(data).decode(),
            size=len(data),
            scrollback_size=terminal.scrollback_size,
            max_scrollback_size=services.MAX_SCROLLBACK,
            alive=terminal.alive,
            exit_code=terminal.exit_code,
        )

    async def _call(self, work: Callable[[HoldClient], Awaitable[T]]) -> T:
        guest = await self.guest()
        return await guest.call(partial(with_held, work=work, limit=TooManyTerminals), CALL_SECONDS)


def _terminal_number(terminal_id: str) -> int:
    """Return the number of a terminal. Raise NotFound for what no terminal has."""
    if not (terminal_id.isascii() and terminal_id.isdecimal() and len(terminal_id) <= 3):
        raise NotFound(UNKNOWN_TERMINAL)
    if not 1 <= (number := int(terminal_id)) <= MAX_ID:
        raise NotFound(UNKNOWN_TERMINAL)
    return number
