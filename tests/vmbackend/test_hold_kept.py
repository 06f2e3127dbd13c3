"""Watches that a guest keeps: events by number for several readers, forgetting, ends, and lies of a guest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer, compile_hold, end_program
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.lying_guest import LyingGuest, Script, with_guests
from tests.vmbackend.lying_guest import run as run_lying
from tests.vmbackend.test_hold_watches import run
from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestUnreachable
from vmbackend.guest.hold import WatchKind, WatchNotFound
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import RequestUnknown, TerminalLimit
from vmbackend.guest.hold.frames import Answer, Failure, Request, number, text, texts

needs_tools = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
UNREAD_SECONDS = 1.0
EVENTS = 64


@pytest.fixture(scope="module")
def small_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One that keeps few events, and an unread watch for a second."""
    program = tmp_path_factory.mktemp("small") / "guest"
    compile_hold(program, f"-DRING_EVENTS={EVENTS}", f"-DUNREAD_MS={int(UNREAD_SECONDS * 1000)}")
    yield program
    end_program(program)


@pytest.fixture
def small(small_program: Path, tmp_path: Path) -> Iterator[LocalHold]:
    made = LocalHold(small_program, tmp_path / "hold")
    yield made
    made.close()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


async def names(client: HoldClient, id: int, start: int, count: int) -> list[str]:
    """Paths of so many events."""
    found: list[str] = []
    while len(found) < count:
        read = await client.kept_watches.read(id, start + len(found))
        assert read.start == start + len(found)
        found += [event.path for event in read.events]
    return found


@needs_tools
def test_several_clients_read_the_same_events(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = await client.kept_watches.keep(str(tree), ["*.o"])
        assert (made.folders, made.start, made.end, made.active) == (1, 0, 0, True)
        other = hold.client()
        waiting = asyncio.ensure_future(names(other, made.id, 0, 2))
        for name in ("a", "left.o", "b"):
            (tree / name).touch()
        assert await waiting == ["a", "b"]
        assert await names(client, made.id, 1, 1) == ["b"]
        shown = await other.kept_watches.show(made.id)
        assert (shown.folder, shown.patterns, shown.end) == (str(tree), ("*.o",), 2)
        await other.close()
        assert await client.kept_watches.list() == [shown]

    run(hold, work)


@needs_tools
def test_it_goes_on_without_clients(hold: LocalHold, tree: Path) -> None:
    made: list[int] = []

    async def begin(client: HoldClient) -> None:
        made.append((await client.kept_watches.keep(str(tree))).id)

    async def go_on(client: HoldClient) -> None:
        assert await names(client, made[0], 0, 1) == ["meanwhile"]

    run(hold, begin)
    (tree / "meanwhile").touch()
    time.sleep(0.3)
    run(hold, go_on)


@needs_tools
def test_the_oldest_events_are_forgotten(small: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = await client.kept_watches.keep(str(tree))
        waiting = asyncio.ensure_future(client.kept_watches.read(made.id, 0))
        for place in range(3 * EVENTS):
            (tree / f"{place:03}").touch()
        await waiting
        while (await client.kept_watches.show(made.id)).end < 3 * EVENTS:
            await client.kept_watches.read(made.id, (await client.kept_watches.show(made.id)).end)
        found = await client.kept_watches.read(made.id, 0)
        assert (found.start, found.end) == (2 * EVENTS, 3 * EVENTS)
        assert [event.path for event in found.events] == [f"{place:03}" for place in range(2 * EVENTS, 3 * EVENTS)]

    run(small, work)


@needs_tools
def test_one_that_nobody_reads_ends(small: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = [await client.kept_watches.keep(str(tree)) for _ in range(2)]
        reading = asyncio.ensure_future(client.kept_watches.read(made[0].id, 0))
        await asyncio.sleep(2 * UNREAD_SECONDS)
        assert [each.id for each in await client.kept_watches.list()] == [made[0].id]
        reading.cancel()

    run(small, work)


@needs_tools
def test_eight_in_all_with_those_of_connections(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = [await client.kept_watches.keep(str(tree)) for _ in range(7)]
        own = await client.watch_folder(str(tree))
        with pytest.raises(TerminalLimit):
            await client.kept_watches.keep(str(tree))
        with pytest.raises(TerminalLimit):
            await client.watch_folder(str(tree))
        await own.close()
        assert (await client.kept_watches.keep(str(tree))).id not in {each.id for each in made}

    run(hold, work)


@needs_tools
def test_the_end_of_the_folder_is_its_last_event(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = await client.kept_watches.keep(str(tree))
        waiting = asyncio.ensure_future(client.kept_watches.read(made.id, 0))
        tree.rmdir()
        found = await waiting
        assert found.events[-1].kind is WatchKind.GONE
        assert not (await client.kept_watches.show(made.id)).active
        assert (await client.kept_watches.read(made.id, 0)).events == found.events  # another reader
        with pytest.raises(WatchNotFound):
            await client.kept_watches.read(made.id, found.end)

    run(hold, work)


@needs_tools
def test_who_waits_is_told_of_the_removal(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = await client.kept_watches.keep(str(tree))
        other = hold.client()
        waiting = asyncio.ensure_future(other.kept_watches.read(made.id, 0))
        await asyncio.sleep(0.2)
        await client.kept_watches.end(made.id)
        with pytest.raises(WatchNotFound):
            await waiting
        await other.close()
        for call in (client.kept_watches.show, client.kept_watches.end):
            with pytest.raises(WatchNotFound):
                await call(made.id)

    run(hold, work)


@needs_tools
def test_events_that_have_not_come_are_refused(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        made = await client.kept_watches.keep(str(tree))
        with pytest.raises(GuestCommandInvalid):
            await client.kept_watches.read(made.id, 1)
        with pytest.raises(GuestPathInvalid):
            await client.kept_watches.keep(str(tree / "none"))
        for folder, patterns in (("relative", []), ("/a\0b", []), ("/a", ["x" * 30_000]), ("/" + "x" * 5000, [])):
            with pytest.raises(GuestPathInvalid):
                await client.kept_watches.keep(folder, patterns)

    run(hold, work)


@needs_tools
def test_one_whose_client_left_before_it_began_is_not_kept(hold: LocalHold, tree: Path) -> None:
    for _ in range(20):
        with RawPeer(hold) as peer:
            peer.greet(bytes(16))
            peer.send(Request.KEEP_WATCH, 1, text(str(tree)), texts([]))

    async def work(client: HoldClient) -> None:
        await client.list_terminals()
        kept = await client.kept_watches.list()
        assert len(kept) <= 8  # one may have begun before its client left
        for each in kept:
            await client.kept_watches.end(each.id)
        for _ in range(8):
            await client.kept_watches.keep(str(tree))

    run(hold, work)


@needs_tools
def test_changes_are_answered_as_they_come(hold: LocalHold, tree: Path) -> None:
    async def work(client: HoldClient) -> None:
        known = await client.wait_change(0)

        async def changed() -> int:
            return await asyncio.wait_for(client.wait_change(known), 30)

        for act in (
            lambda: client.create_terminal(["sleep", "60"]),
            lambda: client.kept_watches.keep(str(tree)),
            lambda: client.close_terminal(1),
        ):
            waiting = asyncio.ensure_future(changed())
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await act()
            known = await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.wait_change(known), 0.5)

    run(hold, work)


def event(kind: int = 2, path: str = "a", other: str = "") -> bytes:
    return number(kind, 1) + number(0, 1) + text(path) + text(other)


Ask = Callable[[HoldClient], Awaitable[object]]
READ: Ask = lambda client: client.kept_watches.read(7, 5)  # noqa: E731
SHOW: Ask = lambda client: client.kept_watches.show(7)  # noqa: E731
LIST: Ask = lambda client: client.kept_watches.list()  # noqa: E731
KEEP: Ask = lambda client: client.kept_watches.keep("/a")  # noqa: E731
SHOW_TERMINAL: Ask = lambda client: client.show_terminal(1)  # noqa: E731
SHOWN = number(0, 1) + number(1, 4)
ENTRY = number(1, 4) + number(80, 2) + number(24, 2) + number(0, 8) + number(0, 8) + number(0, 1) + bytes(5)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (READ, number(4, 8) + event()),
        (READ, number(5, 8)),
        (READ, number(5, 8) + event(9)),
        (READ, number(5, 8) + event() + b"x"),
        (READ, number(1 << 63, 8) + event()),
        (SHOW, SHOWN + number(9, 8) + number(8, 8) + text("/a") + texts([])),
        (SHOW, SHOWN + number(0, 8) + number(8, 8) + text("/a\0") + texts([])),
        (SHOW, SHOWN + number(0, 8) + number(8, 8) + text("/a") + number(9999, 4)),
        (SHOW, SHOWN + number(0, 8) + number(8, 8) + text("/a") + texts([]) + b"x"),
        (LIST, b"".join(number(id, 4) for id in range(1, 10))),
        (LIST, number(3, 4) + number(3, 4)),
        (LIST, number(0, 4)),
        (LIST, b"abc"),
        (KEEP, number(0, 4) + number(1, 4)),
        (KEEP, number(1, 4)),
        (SHOW_TERMINAL, ENTRY),
        (SHOW_TERMINAL, ENTRY + number(0, 8) + number(1024, 4) + texts([])),
        (SHOW_TERMINAL, ENTRY + number(1000, 8) + number(1024, 4) + number(257, 4)),
        (SHOW_TERMINAL, ENTRY + number(1000, 8) + number(1024, 4) + texts(["x" * 5000])),
    ],
)
def test_what_is_no_answer_costs_the_connection(ask: Ask, answer: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            _, about, _ = await guest.hear()
            guest.answer(Answer.DONE, about, answer)

    refused(ask, script, GuestUnreachable)


@pytest.mark.parametrize("ask", [READ, SHOW, LIST, KEEP, SHOW_TERMINAL, lambda client: client.wait_change(0)])
def test_a_kit_that_knows_none_of_it_says_so(ask: Ask) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            _, about, _ = await guest.hear()
            guest.answer(Answer.FAILED, about, number(Failure.BAD_REQUEST, 2), b"there is no such request")

    refused(ask, script, RequestUnknown)


def refused(ask: Ask, script: Script, error: type[Exception]) -> None:
    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(error):
            await ask(client)
        await client.close()

    run_lying(work())
