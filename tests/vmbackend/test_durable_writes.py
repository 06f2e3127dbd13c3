"""What a machine that dies leaves on its disk: every acknowledged write, and no partial file after its next start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, empty_image, run, shell_image, wait_for_output
from tests.vmbackend.test_guest_session import as_stream
from tests.vmbackend.test_guest_ssh import call_session, kit, start, wait_ready
from vmbackend.errors import GuestPathNotFound
from vmbackend.guest.session import GuestSession

__all__ = ["empty_image", "kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
OLD = "/root/.partial-0123456789abcdef"
DEEP_FOLDER = "/srv" + "/d" * 30
DEEP = f"{DEEP_FOLDER}/.partial-0123456789abcdef"
UNCLEAN = "/run/kit/unclean"  # exists until a search has come to its end


def test_an_acknowledged_write_is_there_after_the_machine_died(start: Start) -> None:
    machine = wait_ready(start())
    contents = {"/root/new": b"x" * 300_000, "/srv/made/deep/file": b"1", "/root/replaced": b"second"}

    async def write(session: GuestSession) -> None:
        await session.write("/root/replaced", as_stream(b"first"))
        for path, content in contents.items():
            await session.write(path, as_stream(content))

    call_session(machine, write)
    machine.close()
    again = wait_ready(start())
    found = run(again, *(f"wc -c < {path}" for path in contents), "cat /root/replaced", "ls -A /root /srv/made/deep")
    assert [int(text) for _, text in found[:3]] == [len(content) for content in contents.values()]
    assert found[3] == (0, "second")
    assert ".partial" not in found[4][1]


def test_a_machine_that_died_searches_for_partial_files_at_its_next_start_and_one_that_ended_in_order_does_not(
    start: Start,
) -> None:
    kept = "/root/.partial-of-the-user /root/0123456789abcdef"
    machine = wait_ready(start(clock="2031-05-06T07:08:09"))  # the clock of the next start is behind the files' times
    make = f"mkdir -p '/srv/a b' {DEEP_FOLDER} && touch {OLD} {DEEP} '/srv/a b/.partial-00ff00ff00ff00ff' {kept}"
    assert run(machine, make, "/run/kit/bin/busybox sync")[0][0] == 0
    machine.close()
    again = wait_ready(start())
    left = "\n".join(sorted(kept.split())) + "\n"
    wait_for_output(again, f"ls -d {UNCLEAN} {OLD} {DEEP} '/srv/a b/'.p* /root/.p* /root/0* 2>/dev/null", left)
    assert run(again, f"ls -d {DEEP_FOLDER}")[0][0] == 0
    run(again, f"touch {OLD}")
    end_in_order(again)
    third = wait_ready(start())
    listing = f"{OLD}\nlost+found\nrunning\nupper\nwork\n"
    assert run(third, f"ls {OLD}; ls {UNCLEAN}; ls /run/kit/data")[0][1] == listing


def test_a_transfer_beside_the_search_of_a_start_is_kept(start: Start) -> None:
    machine = wait_ready(start())
    for folders in (100, 1_000):  # of a loaded machine the shorter search may have ended before the transfer began
        names = [f"/srv/{number}/d" for number in range(folders)]
        made = [f"/run/kit/bin/busybox mkdir -p {' '.join(names[at : at + 200])}" for at in range(0, folders, 200)]
        done = run(machine, *made, f"touch {OLD}", "/run/kit/bin/busybox sync")  # a command has 9,000 bytes at most
        assert {status for status, _ in done} == {0}
        machine.close()
        machine = start()
        machine.limit_reads(60)  # a second
        wait_ready(machine)
        if transfer_until_searched(machine):
            break
    else:
        pytest.fail("the search ended before the transfer began")
    assert run(machine, f"ls {OLD}; wc -c < /srv/0/d/new")[0][1] == "300003\n"


def transfer_until_searched(machine: harness.Machine) -> bool:
    """Write a file and end it after the search has ended. False if it had ended at the first piece."""
    searched: list[bool] = []

    async def chunks(session: GuestSession) -> AsyncIterator[bytes]:
        yield b"x" * 300_000
        searched.append(await is_there(session, UNCLEAN))
        while await is_there(session, UNCLEAN):
            await asyncio.sleep(0.05)
        yield b"end"

    async def write(session: GuestSession) -> None:
        await session.write("/srv/0/d/new", chunks(session))

    call_session(machine, write)
    return searched == [True]


async def is_there(session: GuestSession, path: str) -> bool:
    try:
        await session.stat(path)
    except GuestPathNotFound:
        return False
    return True


def end_in_order(machine: harness.Machine) -> None:
    machine.qmp("system_powerdown")
    machine.wait_off()
    machine.close()
