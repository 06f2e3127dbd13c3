"""Terminals by the Python client, sync and async: a sandbox whose guest is a process of this host, through a relay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from microvm import AsyncMicrovm, Microvm
from microvm.errors import ConnectionFailed, MicrovmError, TerminalRefused, Unauthorized
from microvm.sync.terminals import Terminal, Terminals
from sandboxes import services
from tests.sandboxes.sockets.conftest import Box
from tests.sandboxes.sockets.page import Relay

LINES = 20_000
COUNTING = f"i=0; while [ $i -lt {LINES} ]; do echo line-$i; i=$((i+1)); done; exit 4"
WHOLE = b"".join(b"line-%d\r\n" % number for number in range(LINES))


@pytest.fixture
def relay(box: Box) -> Iterator[Relay]:
    made = Relay(box.streams.socket)
    yield made
    made.close()


@pytest.fixture
def url(box: Box, relay: Relay) -> str:
    return f"http://127.0.0.1:{relay.port}/s/{box.sandbox.pk}"


@pytest.fixture
def terminals(url: str, box: Box) -> Iterator[Terminals]:
    with Microvm("http://127.0.0.1", token="unused") as client:
        yield client.sandboxes.open(url, box.token).terminals


def read_until(output: Iterator[bytes], wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += next(output)
    return shown


def type_until_lost(terminal: Terminal) -> None:
    """The first characters may be taken by the connection that is lost."""
    for _ in range(100):
        terminal.send("a")
        time.sleep(0.01)


def test_output_comes_while_the_program_runs_and_its_code_at_the_end(terminals: Terminals) -> None:
    script = ["-c", "stty size; pwd; read x; stty size; echo got $x; exit 3"]
    with terminals.open("sh", args=script, cwd="/", columns=90, rows=20) as terminal:
        output = terminal.output()
        assert b"20 90\r\n/\r\n" in read_until(output, b"/\r\n")
        assert terminal.exit_code is None
        terminal.resize(70, 10)
        terminal.send("hé\r")
        rest = b"".join(output)
        assert b"10 70\r\n" in rest
        assert "got hé\r\n".encode() in rest
        assert (terminal.exit_code, terminal.signal) == (3, None)
        assert [*terminal.output()] == []


def test_the_same_asynchronously_with_several_at_once(url: str, box: Box) -> None:
    async def output_of(client: AsyncMicrovm, number: int) -> tuple[bytes, int | None]:
        box_terminals = client.sandboxes.open(url, box.token).terminals
        async with box_terminals.open(f"read x; echo {number} $x; exit {number}") as terminal:
            await terminal.send("in\r")
            return b"".join([part async for part in terminal.output()]), terminal.exit_code

    async def run() -> list[tuple[bytes, int | None]]:
        async with AsyncMicrovm("http://127.0.0.1", token="unused") as client:
            return [*await asyncio.gather(*(output_of(client, number) for number in range(3)))]

    for number, (shown, code) in enumerate(asyncio.run(run())):
        assert f"{number} in\r\n".encode() in shown
        assert code == number


def test_no_output_is_lost_or_doubled_where_connections_are(terminals: Terminals, relay: Relay) -> None:
    shown, cuts = b"", 0
    with terminals.open(COUNTING) as terminal:
        for part in terminal.output():
            shown += part
            if len(shown) > (cuts + 1) * len(WHOLE) // 4:
                relay.cut()
                cuts += 1
        assert terminal.exit_code == 4
    assert cuts >= 3
    assert shown == WHOLE


def test_none_is_lost_asynchronously_either(url: str, box: Box, relay: Relay) -> None:
    async def run() -> tuple[bytes, int | None]:
        shown = b""
        async with (
            AsyncMicrovm("http://127.0.0.1", token="unused") as client,
            client.sandboxes.open(url, box.token).terminals.open(COUNTING) as terminal,
        ):
            async for part in terminal.output():
                if len(shown) < len(WHOLE) // 2 <= len(shown) + len(part):
                    await asyncio.to_thread(relay.cut)
                shown += part
        return shown, terminal.exit_code

    assert asyncio.run(run()) == (WHOLE, 4)


def test_what_is_typed_after_a_lost_connection_arrives_and_what_it_took_is_said(
    terminals: Terminals, relay: Relay
) -> None:
    with terminals.open("echo ready; read x; echo got $x") as terminal:
        output = terminal.output()
        read_until(output, b"ready")
        relay.cut()
        with pytest.raises(ConnectionFailed, match="may have arrived"):
            type_until_lost(terminal)
        terminal.send("z\r")
        assert b"z\r\n" in b"".join(output)
        assert terminal.exit_code == 0


def test_a_terminal_is_left_listed_attached_again_and_ended(terminals: Terminals) -> None:
    with terminals.open("echo ready; read x; kept=$x; echo again; read y; echo $kept; sleep 100") as terminal:
        read_until(terminal.output(), b"ready")
        terminal.send("yes\r")
        read_until(terminal.output(), b"again")
        number, offset = terminal.id, terminal.received
    assert [(each["terminalId"], each["running"]) for each in terminals.list()] == [(number, True)]
    with terminals.attach(number, offset=offset) as terminal:
        terminal.send("\r")
        assert b"ready" not in read_until(terminal.output(), b"yes\r\n")
        terminal.end()
        with pytest.raises(TerminalRefused) as refused:
            [*terminal.output()]
        assert refused.value.code == "terminal_closed"
    assert terminals.list() == []


def test_a_signal_is_named(terminals: Terminals) -> None:
    with terminals.open("kill -TERM $$") as terminal:
        assert [*terminal.output()] == []
        assert (terminal.exit_code, terminal.signal) == (None, "SIGTERM")


def test_output_that_is_not_kept_is_counted(terminals: Terminals) -> None:
    with terminals.open("head -c 1000000 /dev/zero | tr '\\0' x; echo end; read y") as terminal:
        shown = read_until(terminal.output(), b"end")
        number = terminal.id
    lost: list[int] = []
    with terminals.attach(number, on_gap=lost.append) as terminal:
        kept = read_until(terminal.output(), b"end")
        terminal.end()
    assert lost == [len(shown) - len(kept)]
    assert len(kept) < 300_000


def _unknown_token(terminals: Terminals, url: str) -> Any:
    return Terminals(url, "sbt_unknown").open("true")


@pytest.mark.parametrize(
    ("opened", "kind", "code"),
    [
        (_unknown_token, Unauthorized, "unauthorized"),
        (lambda terminals, url: terminals.attach(9), TerminalRefused, "terminal_not_found"),
        (lambda terminals, url: terminals.open("x", args=["\x00"]), TerminalRefused, "validation_error"),
    ],
)
def test_a_refusal_is_an_error_with_its_code(
    terminals: Terminals, url: str, opened: Callable[[Terminals, str], Any], kind: type[Exception], code: str
) -> None:
    with pytest.raises(kind) as refused, opened(terminals, url):
        pass
    assert getattr(refused.value, "code", None) == code
    assert "sbt_" not in str(refused.value)


def test_a_token_that_ends_ends_the_output(terminals: Terminals, box: Box) -> None:
    with terminals.open("echo ready; sleep 100") as terminal:
        output = terminal.output()
        read_until(output, b"ready")
        services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
        with pytest.raises(Unauthorized, match="token of the sandbox has ended"):
            next(output)


def test_where_nothing_answers_that_is_said(
    monkeypatch: pytest.MonkeyPatch, terminals: Terminals, relay: Relay
) -> None:
    monkeypatch.setattr("microvm.sync.terminals.FIRST_PATIENCE", 0.5)
    relay.cut(refuse=True)
    with pytest.raises(ConnectionFailed), terminals.open("true"):
        pass


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, terminals: Terminals) -> None:
    monkeypatch.setattr("microvm.sockets.find_spec", lambda name: None)
    with pytest.raises(MicrovmError, match=r"microvm\[terminals\]"), terminals.open("true"):
        pass
