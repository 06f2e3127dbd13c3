"""A guest that says anything about its terminals costs the process no more than those that a sandbox may have."""

from __future__ import annotations

import asyncio
import json
from unittest.mock import Mock

import pytest
from django.conf import settings

from sandboxes.sockets.messages import MAX_INPUT
from sandboxes.sockets.socket import TerminalSocket
from tests.vmbackend.lying_guest import LyingGuest, run, with_guests
from vmbackend.guest.hold import TerminalLimit
from vmbackend.guest.hold.frames import Answer, Request, number
from vmbackend.guest.session import GuestAddress
from workspaces.data_plane.sockets import machine, terminal
from workspaces.data_plane.sockets.machine import MAX_WAITING_INPUT, MachineTerminals

WANTED = (None, (80, 24), None)


def forgetful(*, ends: bool) -> object:
    """Makes terminals without end, and lists none. It takes no input."""

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        made = 0
        while True:
            kind, about, _ = await guest.hear()
            if kind == Request.CREATE:
                made += 1
                guest.answer(Answer.DONE, about, number(made, 4))
                if ends:
                    guest.answer(Answer.EXITED, made, bytes(5), number(0, 8))
            elif kind == Request.LIST:
                guest.answer(Answer.DONE, about, number(0, 4))
            elif kind != Request.INPUT:
                guest.answer(Answer.DONE, about)

    return script


def opened(monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> MachineTerminals:
    monkeypatch.setattr(machine, "open_hold", lambda *_: with_guests(forgetful(ends=ends)))  # type: ignore[arg-type]
    monkeypatch.setattr(MachineTerminals, "_record_use", lambda _: "")
    return MachineTerminals(GuestAddress("machine", "10.0.0.2", 22, "none"))


def test_terminals_that_a_guest_does_not_list_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        found = opened(monkeypatch, ends=False)
        for _ in range(settings.ENV.sandbox_terminals_max):
            await found.create(*WANTED)
        with pytest.raises(TerminalLimit):
            await found.create(*WANTED)
        assert len(found.terminals) == settings.ENV.sandbox_terminals_max
        await found.close(returns=False)

    run(work())


def test_ended_terminals_that_a_guest_has_forgotten_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        found = opened(monkeypatch, ends=True)
        for _ in range(settings.ENV.sandbox_terminals_max + 10):
            made = await found.create(*WANTED)
            made.attach(Mock(), 0, ack=False)
            while not made.over:
                await asyncio.sleep(0.01)
        assert len(found.terminals) == settings.ENV.sandbox_terminals_max
        await found.close(returns=False)

    run(work())


async def repeating(guest: LyingGuest) -> None:
    """Gives every terminal the same id, and more output than is read before a socket has taken it."""
    await guest.welcome()
    while True:
        kind, about, _ = await guest.hear()
        if kind == Request.CREATE:
            guest.answer(Answer.DONE, about, number(1, 4))
            for at in range(0, 64 * 1024, 8 * 1024):
                guest.answer(Answer.OUTPUT, 1, number(at, 8), bytes(8 * 1024))
        elif kind == Request.LIST:
            guest.answer(Answer.DONE, about, number(0, 4))


def test_terminals_whose_id_is_given_again_end_and_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "open_hold", lambda *_: with_guests(repeating))
    monkeypatch.setattr(MachineTerminals, "_record_use", lambda _: "")

    async def work() -> None:
        found = MachineTerminals(GuestAddress("machine", "10.0.0.2", 22, "none"))
        other = TerminalSocket(found)
        of_one = 0
        for number_made in range(20):
            made = await found.create(*WANTED)
            made.attach(Mock(), 0, ack=False)  # it takes nothing
            while not made.output.end:
                await asyncio.sleep(0)
            if number_made == 0:
                other.attach(made, 0, ack=False)
                of_one = len(asyncio.all_tasks())
        while len(asyncio.all_tasks()) > of_one:
            await asyncio.sleep(0)
        sent: list[bytes | str] = []

        async def send(data: bytes | str) -> None:
            sent.append(data)

        sending = asyncio.ensure_future(other.send_forever(send))
        while not any(isinstance(each, str) for each in sent):
            await asyncio.sleep(0)
        assert json.loads(str(sent[-1]))["code"] == "terminal_not_found"
        assert b"".join(each[1:] for each in sent if isinstance(each, bytes)).strip(b"\0") == b""
        sending.cancel()
        await found.close(returns=False)

    run(work())


def test_input_that_waits_is_limited_for_all_terminals_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LAST_INPUT_SECONDS", 0.0)

    async def work() -> None:
        found = opened(monkeypatch, ends=False)
        socket = TerminalSocket(found)
        for id in range(1, 9):
            await found.create(*WANTED)
            await socket.serve_message(bytes([id]) + b"x" * MAX_INPUT)
        assert sum(each.input_size for each in found.terminals.values()) == MAX_WAITING_INPUT
        refused = [json.loads(text) for text in socket._unsent if "input_full" in text]
        assert [each["type"] for each in refused] == ["terminal_error"] * 4
        await socket.leave()
        await found.close(returns=False)

    run(work())
