"""Terminals that outlive connections and sleep, and commands that end whole, in real machines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.hold_factory import read_until
from tests.vmbackend.test_guest_kit import Start, shell_image
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from vmbackend.driver import Boot
from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import TerminalNotFound
from vmbackend.guest.hold.terminal_fields import TerminalExit
from vmbackend.guest.kit import Kit
from vmbackend.guest.ssh import SSHGuestSession

__all__ = ["kit", "shell_image", "start"]
pytestmark = pytest.mark.vm

COUNT = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"


@pytest.fixture(scope="module")
def greeting(tmp_path_factory: pytest.TempPathFactory, kit: Kit, shell_image: Path) -> Iterator[harness.Machine]:
    """A machine with GREETING in its environment, for tests that do not end it; they may kill its hold."""
    boot = Boot(hostname="guest-1", env={"GREETING": "hello there"})
    machine = harness.start(tmp_path_factory.mktemp("greeting") / "m", kit, shell_image, boot)
    yield wait_ready(machine)
    machine.close()


def in_guest(machine: harness.Machine, work: Callable[[SSHGuestSession], Awaitable[None]]) -> None:
    async def session() -> None:
        guest = machine.session()
        try:
            await asyncio.wait_for(work(guest), 120)
        finally:
            await guest.close()

    asyncio.run(session())


async def again(call: Callable[[], Awaitable[object]]) -> None:
    """Call until the guest answers: its network returns a moment after a wake."""
    for _ in range(100):
        try:
            await call()
            return
        except GuestUnreachable:
            await asyncio.sleep(0.2)
    raise AssertionError("the guest does not answer")


def test_a_terminal_outlives_connections_and_sleep(start: Start, kit: Kit, shell_image: Path) -> None:
    machine = wait_ready(start())

    async def begin(guest: SSHGuestSession) -> tuple[int, int]:
        client = guest.open_hold()
        terminal = await client.create_terminal(["sh", "-c", COUNT])
        await read_until(terminal, b"line 3\r\n")
        await client._link._transport.close()  # type: ignore[union-attr]
        await read_until(terminal, b"line 6\r\n")
        return terminal.id, terminal.offset

    async def lose(guest: SSHGuestSession) -> None:
        nonlocal id, offset
        id, offset = await begin(guest)

    id, offset = 0, 0
    in_guest(machine, lose)
    machine.sleep()
    woken = harness.wake(machine, kit, shell_image)

    async def go_on(guest: SSHGuestSession) -> None:
        client = guest.open_hold()
        await again(client.list_terminals)
        terminal = await client.attach_terminal(id, offset)
        seen = b""
        while b"line 30\r\n" not in seen:
            at, data = await terminal.read()
            assert at == offset + len(seen)
            seen += data
        whole = b"".join(b"line %d\r\n" % number for number in range(1, 31))
        assert seen.startswith(whole[offset:])
        await terminal.close()
        await client.close()

    try:
        in_guest(woken, go_on)
    finally:
        woken.close()


def test_what_left_its_session_ends_with_its_terminal_and_with_a_deadline(start: Start) -> None:
    machine = wait_ready(start())
    deep = "trap '' HUP TERM; {0} setsid {0} setsid sh -c 'echo $$ > /tmp/pid; exec {0} sleep 999' & {0} sleep 999"
    script = deep.format("/run/kit/bin/busybox")

    async def is_gone(guest: SSHGuestSession) -> None:
        # A zombie may remain for a moment.
        state = "grep -s '^State' /proc/$(cat /tmp/pid)/status"
        for _ in range(100):
            found = await guest.execute(f"/run/kit/bin/busybox {state}; rm -f /tmp/none")
            if b"sleeping" not in found.stdout:
                await guest.execute("rm /tmp/pid")
                return
            await asyncio.sleep(0.1)
        raise AssertionError(found)

    async def work(guest: SSHGuestSession) -> None:
        client = guest.open_hold()
        # The user's own view of the machine does not matter.
        hidden = "/run/kit/bin/busybox umount -l /sys/fs/cgroup; /run/kit/bin/busybox umount -l /dev/pts; true"
        assert (await guest.execute(hidden)).exit_code == 0
        terminal = await client.create_terminal(["sh", "-c", script])
        while (await guest.execute("cat /tmp/pid")).stdout == b"":
            await asyncio.sleep(0.1)
        await terminal.close()
        await is_gone(guest)
        result = await guest.execute(script, timeout=3)
        assert (result.timed_out, result.exit_code) == (True, 124)
        await is_gone(guest)
        await client.close()

    in_guest(machine, work)


def test_a_background_process_with_the_output_open_does_not_hold_the_answer_and_lives_on(
    greeting: harness.Machine,
) -> None:
    async def work(guest: SSHGuestSession) -> None:
        result = await guest.execute("sleep 999 & echo $!", timeout=60)
        assert (result.exit_code, result.timed_out) == (0, False)
        pid = int(result.stdout)
        assert (await guest.execute(f"kill -0 {pid}")).exit_code == 0

    in_guest(greeting, work)


def test_a_shell_has_the_machines_terminal_and_root_cannot_break_another_terminal(greeting: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        client: HoldClient = guest.open_hold()
        shell = await client.create_terminal(cols=90, rows=33, env={"PS1": "$ "})
        await shell.write(b"/run/kit/bin/busybox tty; echo $GREETING; /run/kit/bin/busybox stty size; exit 4\r")
        seen = b""
        while data := (await shell.read())[1]:
            seen += data
        assert b"\n/dev/pts/" in seen
        assert b"\nhello there\r\n33 90\r\n" in seen
        assert shell.exit == TerminalExit(4, None)
        # Without its process there are other terminals, and a client that says so.
        kept = await client.create_terminal(["sleep", "999"])
        await guest.execute(
            "for p in /proc/[0-9]*; do case $(cat $p/cmdline) in guesthold*) kill -9 ${p#/proc/};; esac; done"
        )
        with pytest.raises(TerminalNotFound):
            await kept.read()
        assert await client.list_terminals() == []
        await client.close()

    in_guest(greeting, work)


def test_a_watch_sees_the_users_files_with_the_limits_of_the_kit(greeting: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        limits = await guest.execute("cat /proc/sys/fs/inotify/max_user_watches /proc/sys/fs/inotify/max_queued_events")
        assert limits.stdout.split() == [b"1048576", b"131072"]
        # A folder of the image, one of a file system that the user mounted, and an absolute link to it.
        busybox = "/run/kit/bin/busybox"
        made = await guest.execute(
            f"{busybox} mkdir /mine; {busybox} mount -t tmpfs none /mine; {busybox} ln -s /mine /link"
        )
        assert made.exit_code == 0
        client = guest.open_hold()
        of_image = await client.watch_folder("/home", ["ignored/"])
        of_link = await client.watch_folder("/link")
        script = (
            f"{busybox} mkdir -p /home/dev/ignored/x /home/dev/a; echo 1 > /home/dev/a/b; mv /home/dev/a /home/dev/c; "
            "echo 1 > /mine/d"
        )
        assert (await guest.execute(script)).exit_code == 0
        seen = [await of_image.read()]
        while seen[-1].path != "dev/c" and seen[-1].other != "dev/c":
            seen.append(await of_image.read())
        assert all("ignored" not in event.path for event in seen)
        assert (await of_link.read()).path == "d"
        # The whole machine but its virtual file systems can be watched.
        await client.watch_folder("/")
        await client.close()

    in_guest(greeting, work)


PARITY = """
B=/run/kit/bin/busybox
$B env | $B sort; pwd; $B id; umask; ulimit -a; $B cat /proc/self/oom_score_adj
$B grep -E '^(Sig|Cap|NoNew|Seccomp|Groups)' /proc/self/status; $B ls -l /proc/self/ns | $B sed 's/.*-> //'
$B test -p /proc/self/fd/0 && echo input is a pipe; $B ls /proc/self/fd; $B nice
"""


def test_a_command_of_the_hold_sees_what_one_of_guest_run_sees(greeting: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        for options in ({}, {"working_dir": "/tmp", "user": "12:34", "env": {"A": "1=2", "HOME": "/x"}}):
            plain = await guest.execute(PARITY, **options)  # type: ignore[arg-type]
            held = await guest.execute_held(PARITY, **options)  # type: ignore[arg-type]
            assert (held.exit_code, held.stdout, held.stderr) == (plain.exit_code, plain.stdout, plain.stderr)
            assert b"GREETING=hello there\n" in held.stdout
        parent = await guest.execute_held("/run/kit/bin/busybox tr '\\0' ' ' < /proc/$PPID/cmdline")
        assert parent.stdout.startswith(b"guest hold ")

    in_guest(greeting, work)


def test_a_command_of_the_hold_ends_whole_and_without_the_hold_another_one_runs(greeting: harness.Machine) -> None:
    escaped = (
        "B=/run/kit/bin/busybox; $B setsid $B setsid sh -c 'echo $$ > /tmp/pid; exec $0 sleep 999' $B & $B sleep 999"
    )

    async def work(guest: SSHGuestSession) -> None:
        result = await guest.execute_held(escaped, timeout=3)
        assert (result.timed_out, result.exit_code) == (True, 124)
        for _ in range(100):
            found = await guest.execute_held("/run/kit/bin/busybox grep -s ^State /proc/$(cat /tmp/pid)/status")
            if b"sleeping" not in found.stdout:
                break
            await asyncio.sleep(0.1)
        assert b"sleeping" not in found.stdout
        result = await guest.execute_held("sleep 999 & echo $!", timeout=60)
        assert (result.exit_code, result.timed_out) == (0, False)
        with pytest.raises(GuestCommandInvalid, match="cannot enter /none: No such"):
            await guest.execute_held("true", working_dir="/none")
        with pytest.raises(GuestUnreachable):  # not run again
            await guest.execute_held("echo run >> /tmp/runs; kill -9 $PPID; sleep 999")
        assert (await guest.execute_held("cat /tmp/runs")).stdout == b"run\n"

    in_guest(greeting, work)
