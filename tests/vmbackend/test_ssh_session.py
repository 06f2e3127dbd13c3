"""The SSH session: keys, lost connections, memory use, concurrent commands, full disks."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from vmbackend.errors import DeadlineExceeded, GuestDiskFull, GuestKitOutdated, GuestUnreachable
from vmbackend.guest.connection import ConnectionSettings
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.ssh import SSHGuestSession

from .local_dropbear import LocalGuest
from .test_guest_session import Guest, helper, local, ssh_pool

__all__ = ["helper", "local"]
pytestmark = pytest.mark.host
MIB = 1 << 20


@pytest.fixture
def guest(local: LocalGuest) -> Iterator[Guest]:
    pool = ssh_pool(local)
    yield Guest(pool, local.address, str(local.root), local.root)
    pool.close()


async def zeros(mebibytes: int) -> AsyncIterator[bytes]:
    block = bytes(MIB)
    for _ in range(mebibytes):
        yield block


def test_another_host_key_is_refused(guest: Guest):
    other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkK4b6RIRacrcHLXFlithFdjnjjmZr9KHrm56BAluEq"
    guest.address = replace(guest.address, host_key=other)
    with pytest.raises(GuestUnreachable, match="host key"):
        guest.run(["true"])


def test_another_client_key_is_refused(local: LocalGuest, guest: Guest, tmp_path: Path):
    import asyncssh

    key = tmp_path / "other"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(key))
    guest.pool = GuestPool(lambda address: SSHGuestSession(address, key, kit=local.kit))
    with pytest.raises(GuestUnreachable, match="rejects"):
        guest.run(["true"])
    guest.pool.close()


def test_a_guest_that_does_not_listen_is_unreachable(guest: Guest, local: LocalGuest):
    local.stop()
    with pytest.raises(GuestUnreachable):
        guest.run(["true"])


def test_a_connection_lost_during_a_read_raises_and_the_next_call_reconnects(guest: Guest, local: LocalGuest):
    with (local.root / "big").open("wb") as big:
        big.truncate(64 * MIB)
    chunks = guest.pool.stream(guest.address, lambda session: session.read(f"{guest.inside}/big"))
    next(chunks)
    local.drop_connections()
    with pytest.raises(GuestUnreachable):
        list(chunks)
    assert guest.run("echo again").stdout == b"again\n"


def test_an_idle_connection_that_is_lost_is_reopened(guest: Guest, local: LocalGuest):
    guest.write("file", b"1")
    local.drop_connections()
    assert guest.read("file") == b"1"
    local.drop_connections()
    assert guest.run("echo again").stdout == b"again\n"


def test_a_command_is_not_repeated_after_a_lost_connection(guest: Guest, local: LocalGuest):
    threading.Timer(1.0, local.drop_connections).start()
    with pytest.raises(GuestUnreachable):
        guest.run(f"echo ran >> {local.root}/runs; sleep 20")
    assert (local.root / "runs").read_text() == "ran\n"


def test_a_kit_that_has_no_such_command_is_said_to_be_older(guest: Guest):
    with pytest.raises(GuestKitOutdated):
        guest.call(lambda session: session.kit_helper("of-a-later-kit", b""))


def test_fifty_commands_at_once_share_a_few_connections(guest: Guest, local: LocalGuest):
    async def many(session: GuestSession) -> list[bytes]:
        results = await asyncio.gather(*(session.execute(["echo", str(number)]) for number in range(50)))
        return [result.stdout for result in results]

    assert guest.call(many) == [f"{number}\n".encode() for number in range(50)]
    assert len(local.connections()) <= 10


def test_long_commands_do_not_block_listings_and_sync(guest: Guest):
    async def list_and_sync(session: GuestSession) -> float:
        most = ConnectionSettings().max_channels
        long = [asyncio.ensure_future(session.execute(["sleep", "60"])) for _ in range(most + 1)]
        await asyncio.sleep(2)
        began = time.monotonic()
        await session.list_directory(guest.inside)
        await session.sync()
        seconds = time.monotonic() - began
        for task in long:
            task.cancel()
        await asyncio.wait(long)
        return seconds

    assert guest.call(list_and_sync) < 50


def rss_bytes(status: Path = Path("/proc/self/status")) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_large_files_pass_in_constant_memory(guest: Guest, local: LocalGuest):
    guest.write("warm", b"x" * MIB)
    guest.read("warm")
    before = rss_bytes()
    highest = before
    written = guest.call(lambda session: session.write(f"{guest.inside}/big", zeros(64)))
    highest = max(highest, rss_bytes())
    read = 0
    for chunk in guest.pool.stream(guest.address, lambda session: session.read(f"{guest.inside}/big")):
        assert len(chunk) <= 256 * 1024
        read += len(chunk)
        if read % (8 * MIB) == 0:
            highest = max(highest, rss_bytes())
    assert written == read == 64 * MIB
    assert highest - before < 32 * MIB


def test_endless_output_takes_constant_memory(guest: Guest):
    before = rss_bytes()
    result = guest.run("head -c 100000000 /dev/zero", max_output=1000)
    assert result.truncated
    assert rss_bytes() - before < 32 * MIB


def test_files_of_proc_have_contents_despite_a_size_of_zero(guest: Guest):
    assert b"Linux" in guest.read("/proc/version")
    assert guest.read("/proc/cpuinfo") != b""


def test_a_device_is_refused(guest: Guest):
    from vmbackend.errors import GuestPathInvalid

    for path in ("/dev/zero", "/dev/tty"):
        with pytest.raises(GuestPathInvalid):
            guest.read(path)


def test_a_full_disk_raises_guest_disk_full_and_keeps_the_old_file(guest: Guest, local: LocalGuest):
    local.stop()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(local.root)], check=True)
    try:
        local.start()
        guest.write("file", b"old")
        with pytest.raises(GuestDiskFull):
            guest.call(lambda session: session.write(f"{guest.inside}/file", zeros(8)))
        assert guest.read("file") == b"old"
        assert [entry.name for entry in guest.names()[0]] == ["file"]
    finally:
        guest.pool.close()
        local.stop()
        subprocess.run(["umount", "-l", str(local.root)], check=True)


def test_a_hanging_file_server_raises_after_the_request_timeout(local: LocalGuest, tmp_path: Path):
    settings = ConnectionSettings(request_timeout=1.0)
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 20\n")
    hanging.chmod(0o755)
    kit = replace(local.kit, sftp_server=str(hanging))
    pool = GuestPool(lambda address: SSHGuestSession(address, local.private_key, settings=settings, kit=kit))
    started = time.monotonic()
    with pytest.raises(GuestUnreachable):
        pool.call(local.address, lambda session: session.stat("/"))
    assert 1 <= time.monotonic() - started < 18
    pool.close()


def test_each_call_has_its_own_deadline(guest: Guest):
    with pytest.raises(DeadlineExceeded):
        guest.pool.call(guest.address, lambda session: session.execute(["sleep", "20"]), timeout=0.5)
    assert guest.run("echo well").stdout == b"well\n"


def test_asynchronous_callers_stream_on_their_own_event_loop(guest: Guest):
    address: GuestAddress = guest.address
    path = f"{guest.inside}/file"

    async def both() -> int:
        written = await guest.pool.apush(address, lambda s, chunks: s.write(path, chunks), zeros(3))
        async with aclosing(guest.pool.astream(address, lambda s: s.read(path))) as chunks:
            read = 0
            async for chunk in chunks:
                read += len(chunk)
        assert written == read
        async with aclosing(guest.pool.astream(address, lambda s: s.read(path))) as chunks:
            await anext(chunks)
        return (await guest.pool.acall(address, lambda s: s.stat(path))).size

    assert asyncio.run(both()) == 3 * MIB


def test_a_command_runs_once_where_the_guests_hold_cannot_be_reached(local: LocalGuest):
    kit = replace(local.kit, hold="/proc/none")
    pool = GuestPool(lambda address: SSHGuestSession(address, local.private_key, kit=kit))
    for number in (1, 2):
        result = pool.call(local.address, lambda session: session.execute_held(f"echo >> {local.root}/ran; exit 3"))
        assert (result.exit_code, (local.root / "ran").read_bytes()) == (3, b"\n" * number)
    pool.close()
