"""Commands whose output comes as it is written: the contract of both sessions, and hostile guests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tests.threads import wait_until
from vmbackend.errors import GuestCommandInvalid, GuestOutputNotRead, GuestUnreachable
from vmbackend.fake import commands as fake_commands
from vmbackend.guest import streamed
from vmbackend.guest.output import CommandExit, OutputPart

from .local_dropbear import LocalGuest
from .test_guest_session import Guest, guest, helper, local, ssh_pool
from .test_hostile_guest import Guests, guests
from .test_ssh_session import rss_bytes

__all__ = ["guest", "guests", "helper", "local"]
MIB = 1 << 20


def parts_of(guest: Guest, command: Any, **options: Any) -> Iterator[OutputPart | CommandExit]:
    return guest.pool.stream(guest.address, lambda session: session.execute_streamed(command, **options), 60)


def run(guest: Guest, command: Any, **options: Any) -> tuple[bytes, bytes, CommandExit]:
    *parts, end = parts_of(guest, command, **options)
    assert isinstance(end, CommandExit)
    return text_of(parts, "stdout"), text_of(parts, "stderr"), end


def text_of(parts: list[Any], name: str) -> bytes:
    return b"".join(part.data for part in parts if part.stream == name)


@pytest.fixture
def ssh(local: LocalGuest) -> Iterator[Guest]:
    pool = ssh_pool(local)
    yield Guest(pool, local.address, str(local.root), local.root)
    pool.close()


def test_a_streamed_command_has_both_outputs_and_its_code(guest: Guest) -> None:
    out, err, end = run(guest, 'cat; echo "$A"; echo err >&2; exit 3', stdin=b"typed ", env={"A": "x"})
    assert (out, err, end.exit_code, end.timed_out) == (b"typed x\n", b"err\n", 3, False)
    assert run(guest, "kill -9 $$")[2].exit_code == 137
    assert run(guest, "exit 124")[2].timed_out is False


def test_input_in_parts_reaches_the_command_as_it_comes_and_ends_it(guest: Guest, tmp_path: Path) -> None:
    asked = []

    async def parts() -> AsyncIterator[bytes]:
        for number in range(40):
            asked.append(number)
            yield bytes(range(256)) * 400
        while not (tmp_path / "go").exists():
            await asyncio.sleep(0.02)

    count = f"head -c 1000 | wc -c; touch {tmp_path}/go; cat | wc -c"
    out, _, end = run(guest, count, stdin=b"first", stdin_parts=parts())
    first, rest = map(int, out.split())
    assert (first, end.exit_code, len(asked)) == (1000, 0, 40)
    assert rest <= 40 * 102_400 + 5 - 1000  # what `head` has read beyond its part is lost to it
    assert rest > 30 * 102_400


def test_output_is_there_before_the_command_ends(guest: Guest, tmp_path: Path) -> None:
    with closing(parts_of(guest, f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two")) as parts:
        assert next(part.data for part in parts if part.data) == b"one\n"
        (tmp_path / "go").touch()
        assert [part.data for part in parts if isinstance(part, OutputPart)] == [b"two\n"]


def test_megabytes_of_both_outputs_arrive_whole(guest: Guest) -> None:
    out, err, end = run(guest, "seq 1 300000 >&2 & seq 1 700000; wait")
    assert out == b"".join(b"%d\n" % n for n in range(1, 700_001))
    assert err == b"".join(b"%d\n" % n for n in range(1, 300_001))
    assert end.exit_code == 0


@pytest.mark.parametrize(
    ("command", "options"),
    [(["no-such-program"], {}), (["true"], {"working_dir": "/no/such/dir"}), (["true"], {"user": "no-such-user"})],
)
def test_what_cannot_be_started_is_refused_before_the_first_part(
    guest: Guest, command: list[str], options: dict[str, str]
) -> None:
    with pytest.raises(GuestCommandInvalid):
        next(parts_of(guest, command, **options))


def test_the_code_of_a_shell_says_why_nothing_was_started(guest: Guest, tmp_path: Path) -> None:
    for command, code in ((["no-such-program"], 127), ([str(tmp_path)], 126)):
        with pytest.raises(GuestCommandInvalid) as caught:
            next(parts_of(guest, command))
        assert caught.value.exit_code == code


def test_output_that_looks_like_the_helpers_refusal_is_output(guest: Guest) -> None:
    _, err, end = run(guest, "echo guest: hello >&2; exit 5")
    assert (err, end.exit_code) == (b"guest: hello\n", 5)


def test_a_silent_command_has_an_empty_first_part(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "START_SECONDS", 0.1)
    with closing(parts_of(guest, "sleep 1; echo late")) as parts:
        assert next(parts) == OutputPart("stdout", b"")
        assert [part.data for part in parts if isinstance(part, OutputPart)] == [b"late\n"]


def test_the_deadline_ends_a_streamed_command_with_its_grace(guest: Guest, tmp_path: Path) -> None:
    command = f"trap 'touch {tmp_path}/ended; exit' TERM; echo begun; sleep 30 & wait"
    out, _, end = run(guest, command, timeout=1.0, grace=2.0)
    assert (out, end.exit_code, end.timed_out) == (b"begun\n", 124, True)
    assert (tmp_path / "ended").exists()


def test_a_reader_that_stops_ends_the_command(guest: Guest, tmp_path: Path) -> None:
    command = f"trap 'touch {tmp_path}/ended; exit' TERM; echo $$ > {tmp_path}/pid; echo begun; sleep 30 & wait"
    with closing(parts_of(guest, command, grace=2.0)) as parts:
        next(part for part in parts if part.data)
    wait_until(lambda: (tmp_path / "ended").exists())
    pid = (tmp_path / "pid").read_text().strip()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert run(guest, "echo well")[0] == b"well\n"


def test_a_command_waits_for_a_reader_that_does_not_read(guest: Guest, tmp_path: Path) -> None:
    count = tmp_path / "count"
    loop = f"i=0; while [ $i -lt 200 ]; do i=$((i+1)); head -c 10000 /dev/zero; echo $i > {count}; done"
    with closing(parts_of(guest, loop)) as parts:
        received = len(next(part.data for part in parts if part.data))
        time.sleep(1)
        stopped = count.read_text()
        time.sleep(0.5)
        assert count.read_text() == stopped
        assert int(stopped) < 150
        rest = list(parts)
        assert received + len(text_of(rest[:-1], "stdout")) == 2_000_000


def test_what_is_not_read_until_after_the_deadline_is_an_error(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (streamed, fake_commands):
        monkeypatch.setattr(module, "DEADLINE_SLACK", 0.2)
    with closing(parts_of(guest, "yes", timeout=1.0)) as parts:
        next(part for part in parts if part.data)
        time.sleep(1.5)
        with pytest.raises(GuestOutputNotRead):
            list(parts)
    assert run(guest, "echo well")[0] == b"well\n"


@pytest.mark.host
def test_endless_output_takes_constant_memory(ssh: Guest) -> None:
    before, size = rss_bytes(), 0
    with closing(parts_of(ssh, "yes abcdefgh; true")) as parts:
        for part in parts:
            assert isinstance(part, OutputPart)
            assert len(part.data) <= 32 * 1024
            size += len(part.data)
            if size > 100 * MIB:
                break
        assert rss_bytes() - before < 20 * MIB


@pytest.mark.host
def test_a_lost_connection_ends_the_stream_with_an_error(ssh: Guest, local: LocalGuest) -> None:
    with closing(parts_of(ssh, "echo begun; sleep 30")) as parts:
        next(part for part in parts if part.data)
        local.drop_connections()
        with pytest.raises(GuestUnreachable):
            list(parts)
    assert run(ssh, "echo again")[0] == b"again\n"


@pytest.mark.host
def test_a_connection_is_used_again_after_a_stream_and_after_a_refusal(ssh: Guest, local: LocalGuest) -> None:
    run(ssh, "echo one")
    first = local.connections()
    with pytest.raises(GuestCommandInvalid):
        run(ssh, ["no-such-program"])
    run(ssh, "echo two")
    assert local.connections() == first


@pytest.mark.host
def test_single_bytes_without_an_end_come_in_larger_parts_and_stop_with_the_reader(guests: Guests) -> None:
    liar = guests.start("output in single bytes")

    async def read() -> list[int]:
        sizes = []
        async with aclosing(
            guests.pool.astream(liar, lambda session: session.execute_streamed(["flood"], timeout=50.0), 60)
        ) as parts:
            async for part in parts:
                assert isinstance(part, OutputPart)
                sizes.append(len(part.data))
                await asyncio.sleep(0.05)
                if len(sizes) == 20:
                    return sizes
        raise AssertionError("it ended")

    assert max(asyncio.run(read())) > 100


@pytest.mark.host
def test_a_guest_that_does_not_end_a_command_is_left_at_the_deadline(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "DEADLINE_SLACK", 0.3)
    liar = guests.start("ignored packets")
    *_, end = guests.pool.stream(liar, lambda session: session.execute_streamed(["flood"], timeout=2.5), 60)
    assert isinstance(end, CommandExit)
    assert (end.exit_code, end.timed_out) == (124, True)
