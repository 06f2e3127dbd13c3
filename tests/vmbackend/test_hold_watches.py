"""Watches of a guest's folders through the hold: windows, limits, and connections that come and go."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.lying_guest import LyingGuest, with_guests
from vmbackend.errors import GuestPathInvalid, GuestUnreachable
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import TerminalLimit
from vmbackend.guest.hold.frames import Answer, Request, number, text, texts
from vmbackend.guest.hold.watch import HeldWatch, WatchEvent, WatchKind

needs_tools = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")


def run(hold: LocalHold, work: Callable[[HoldClient], Awaitable[None]]) -> None:
    async def session() -> None:
        client = hold.client()
        try:
            await asyncio.wait_for(work(client), 200)
        finally:
            await client.close()

    asyncio.run(session())


async def read_path(watch: HeldWatch, path: str) -> list[WatchEvent]:
    """Events up to the one of that path."""
    found = []
    while not found or found[-1].path != path:
        found.append(await watch.read())
    return found


@needs_tools
def test_events_arrive_and_patterns_are_left_out(hold: LocalHold, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    async def work(client: HoldClient) -> None:
        watch = await client.watch_folder(str(tree), ["*.log", "build/"])
        (tree / "build").mkdir()
        (tree / "build/x").touch()
        (tree / "a.log").touch()
        (tree / "b\udcff").touch()
        (tree / "b\udcff").rename(tree / "c")
        assert await watch.read() == WatchEvent(WatchKind.ADDED, False, "b\udcff", "")
        assert await watch.read() == WatchEvent(WatchKind.RENAMED, False, "b\udcff", "c")
        await watch.close()
        await watch.close()
        assert (await watch.read()).kind == WatchKind.GONE

    run(hold, work)


@needs_tools
def test_watches_are_limited_and_end_with_their_client(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        for _ in range(8):
            await client.watch_folder(str(tmp_path))
        with pytest.raises(TerminalLimit):
            await client.watch_folder(str(tmp_path))
        other = hold.client()
        with pytest.raises(TerminalLimit):
            await other.watch_folder(str(tmp_path))
        await client.close()
        for _ in range(100):
            try:
                await other.watch_folder(str(tmp_path))
                break
            except TerminalLimit:
                await asyncio.sleep(0.1)
        else:
            raise AssertionError("the watches of a client that has left are there")
        await other.close()

    run(hold, work)


@needs_tools
def test_watches_of_a_connection_whose_end_was_not_noticed_end_when_another_client_needs_one(
    hold: LocalHold, tmp_path: Path
) -> None:
    with RawPeer(hold) as lost:
        lost.greet(b"l" * 16)
        for about in range(8):
            lost.send(Request.WATCH, about, number(1 << 16, 4), text(str(tmp_path)), texts([]))
            assert lost.receive()[:2] == (Answer.DONE, about)

        def end() -> None:
            """As the kernel of a host that has no such connection any more: at the first byte."""
            assert lost.process.stdout is not None
            lost.process.stdout.read(1)
            lost.process.kill()

        async def work(client: HoldClient) -> None:
            for _ in range(50):
                with suppress(TerminalLimit):
                    await client.watch_folder(str(tmp_path))
                    return
                await asyncio.sleep(0.1)
            raise AssertionError("the watches of the lost connection are there")

        ending = threading.Thread(target=end)
        ending.start()
        try:
            run(hold, work)
        finally:
            lost.process.kill()
            ending.join()


@needs_tools
def test_a_client_that_is_there_keeps_its_watches_when_another_needs_one(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        watches = [await client.watch_folder(str(tmp_path)) for _ in range(8)]
        other = hold.client()
        for _ in range(3):
            with pytest.raises(TerminalLimit):
                await other.watch_folder(str(tmp_path))
        await client.list_terminals()
        (tmp_path / "new").touch()
        assert {(await watch.read()).path for watch in watches} == {"new"}
        await other.close()

    run(hold, work)


@needs_tools
@pytest.mark.parametrize("folder", ["/not/there", "relative", "/a\0b", "/" + "x" * 2000, "/\ud800"])
def test_what_cannot_be_watched_says_so(hold: LocalHold, folder: str) -> None:
    async def work(client: HoldClient) -> None:
        with pytest.raises(GuestPathInvalid):
            await client.watch_folder(folder)

    run(hold, work)


@needs_tools
def test_a_lost_connection_is_an_overflow_and_it_goes_on(hold: LocalHold, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    async def work(client: HoldClient) -> None:
        watch = await client.watch_folder(str(tree))
        hold.cut()
        assert await watch.read() == WatchEvent(WatchKind.OVERFLOW, True, "", "reconnected")
        (tree / "new").touch()
        assert (await watch.read()).path == "new"

    run(hold, work)


@needs_tools
def test_a_reader_that_stops_misses_nothing_up_to_a_limit_and_holds_no_terminal_up(
    hold: LocalHold, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    async def work(client: HoldClient) -> None:
        watch = await client.watch_folder(str(tree))
        for each in range(20_000):
            (tree / f"file-{each}-{'x' * 100}").touch()
        terminal = await client.create_terminal(["sh", "-c", "echo here"])
        assert (await terminal.read())[1].startswith(b"here")
        assert len(watch._events) < 2000
        found = set()
        while len(found) < 20_000:
            event = await watch.read()
            assert event.kind == WatchKind.ADDED
            assert event.path not in found
            found.add(event.path)
        (tree / "last").touch()
        assert (await watch.read()).path == "last"

    run(hold, work)


@needs_tools
def test_the_end_of_the_folder_ends_the_watch(hold: LocalHold, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()

    async def work(client: HoldClient) -> None:
        watch = await client.watch_folder(str(tree))
        tree.rmdir()
        assert (await watch.read()).kind == WatchKind.GONE
        assert (await watch.read()).kind == WatchKind.GONE
        await watch.close()

    run(hold, work)


def test_a_watch_that_is_cancelled_while_it_begins_leaves_nothing(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        await client.list_terminals()
        for round in range(20):
            beginning = asyncio.ensure_future(client.watch_folder(str(tmp_path)))
            await asyncio.sleep(0.0005 * round)
            beginning.cancel()
            await asyncio.wait([beginning])
            if not beginning.cancelled() and not beginning.exception():
                await beginning.result().close()
        await client.list_terminals()
        watches = []
        while len(watches) < 8:
            try:
                watches.append(await client.watch_folder(str(tmp_path)))
            except TerminalLimit:
                await asyncio.sleep(0.1)

    run(hold, work)


def test_events_after_the_end_of_a_watch_are_dropped(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        for round in range(20):
            watch = await client.watch_folder(str(tmp_path))
            (tmp_path / str(round)).touch()
            await asyncio.sleep(0.003 * round)
            await watch.close()
        assert await client.list_terminals() == []

    run(hold, work)


EVENT = number(WatchKind.ADDED, 1) + number(0, 1) + text("a") + text("")


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        EVENT + b"x",
        number(99, 1) + EVENT[1:],
        EVENT[:2] + number(5000, 4) + bytes(5000) + text(""),
        EVENT[:2] + number(2**32 - 1, 4),
        EVENT[:2] + number(1, 4) + b"\0" + text(""),
    ],
)
def test_a_lie_about_a_watch_costs_the_connection(lie: bytes) -> None:
    async def lying(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(1, 4))
        guest.answer(Answer.EVENT, 1, lie)
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(lying)
        watch = await client.watch_folder("/x")
        with pytest.raises(GuestUnreachable):
            await watch.read()
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 60))


def test_events_beyond_the_window_are_refused() -> None:
    async def lying(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(1, 4))
        frame = struct.pack(">IBI", len(EVENT) + 5, Answer.EVENT, 1) + EVENT
        for _ in range(100):
            guest.say(frame * 100)
            await asyncio.sleep(0)
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(lying)
        watch = await client.watch_folder("/x")
        assert client._link is not None
        await client._link.lost
        assert len(watch._events) < 4000
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 60))
