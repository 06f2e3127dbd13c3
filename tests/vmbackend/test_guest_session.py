"""The contract of guest sessions: over SSH to a local dropbear with the kit's helper, and the fake one."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vmbackend.driver import Boot, MachineSpec
from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestPathNotFound
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.guest import fake_sessions
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.ssh import SSHGuestSession

from . import local_dropbear


class Guest:
    """A session of a pool. `inside` is the guest's path of the folder `outside`, which the test can read."""

    def __init__(self, pool: GuestPool, address: GuestAddress, inside: str, outside: Path) -> None:
        self.pool, self.address, self.inside, self.outside = pool, address, inside, outside

    def call(self, fn: Callable[[GuestSession], Any]) -> Any:
        return self.pool.call(self.address, fn, timeout=60)

    def run(self, command: Any, **options: Any) -> Any:
        return self.call(lambda session: session.execute(command, **options))

    def write(self, name: str, *chunks: bytes, **options: Any) -> int:
        return int(self.call(lambda session: session.write(f"{self.inside}/{name}", as_stream(*chunks), **options)))

    def read(self, name: str, **options: Any) -> bytes:
        path = name if name.startswith("/") else f"{self.inside}/{name}"
        return b"".join(self.pool.stream(self.address, lambda session: session.read(path, **options)))

    def names(self, name: str = "", **options: Any) -> Any:
        return self.call(lambda session: session.list_directory(f"{self.inside}/{name}", **options))


async def as_stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def failing_stream() -> AsyncIterator[bytes]:
    yield b"x" * 100_000
    raise RuntimeError("the sender disconnected")


@pytest.fixture(scope="session")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = local_dropbear.missing_requirement()
    if reason is not None:
        pytest.skip(reason)
    target = tmp_path_factory.mktemp("kit") / "guest"
    local_dropbear.compile_helper(target)
    return target


@pytest.fixture
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[local_dropbear.LocalGuest]:
    running = local_dropbear.LocalGuest(tmp_path, request.getfixturevalue("helper"))
    try:
        yield running
    finally:
        running.stop()


def ssh_pool(local: local_dropbear.LocalGuest) -> GuestPool:
    return GuestPool(lambda address: SSHGuestSession(address, local.private_key, kit=local.kit))


@pytest.fixture(params=["fake", pytest.param("ssh", marks=pytest.mark.host)])
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guest]:
    if request.param == "ssh":
        local = request.getfixturevalue("local")
        pool = ssh_pool(local)
        guest_session = Guest(pool, local.address, str(local.root), local.root)
    else:
        driver = FakeDriver(tmp_path)
        driver.prepare(MachineSpec("m", "sha256:x", 1, 128, 64, "10.0.0.2", Boot("m")))
        driver.start("m")
        pool = GuestPool(fake_sessions(tmp_path))
        guest_session = Guest(pool, GuestAddress("m", "10.0.0.2", 1, ""), "", tmp_path / "directories" / "m" / "disk")
    try:
        yield guest_session
    finally:
        pool.close()


def test_a_command_returns_its_outputs_and_exit_code(guest: Guest):
    result = guest.run("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.truncated


def test_arguments_arrive_unchanged(guest: Guest):
    arguments = ["a b", "$(id)", "'\"", "", "-e", "ü", "\n"]
    result = guest.run(["printf", "%s|", *arguments])
    assert result.stdout.decode() == "".join(f"{word}|" for word in arguments)


def test_environment_and_directory_and_user(guest: Guest):
    guest.write("there/x", b"")
    result = guest.run('printf %s "$A"; pwd >&2', env={"A": "1 2='x"}, working_dir=f"{guest.inside}/there", user="root")
    assert result.stdout == b"1 2='x"
    assert result.stderr.strip().endswith(b"/there")


def test_a_large_environment_and_large_input(guest: Guest):
    result = guest.run(
        ["sh", "-c", 'printf %s "$BIG" | wc -c; wc -c'], env={"BIG": "x" * 100_000}, stdin=b"y" * 300_000
    )
    assert result.stdout.split() == [b"100000", b"300000"]


def test_unread_input_is_no_error(guest: Guest):
    assert guest.run(["true"], stdin=b"y" * 4_000_000).exit_code == 0


def test_the_process_group_is_killed_at_the_deadline(guest: Guest):
    marker = 300 + os.getpid() / 10**6
    started = time.monotonic()
    result = guest.run(f"sleep {marker} & sleep {marker}", timeout=1.0)
    assert (result.exit_code, result.timed_out) == (124, True)
    assert time.monotonic() - started < 60
    time.sleep(0.3)
    left = guest.run(["sh", "-c", f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep {marker}'$"])
    assert left.stdout.strip() == b"0"


def test_a_signal_and_an_exit_code_of_127(guest: Guest):
    assert guest.run("kill -9 $$").exit_code == 137
    assert guest.run("exit 127").exit_code == 127
    assert guest.run("exit 124").timed_out is False


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["no-such-program"], {}),
        (["true"], {"working_dir": "/no/such/dir"}),
        (["true"], {"user": "no-such-user"}),
        (["tr\0ue"], {}),
        ([], {}),
    ],
)
def test_commands_that_cannot_be_started_are_refused(guest: Guest, command: list[str], options: dict[str, str]):
    with pytest.raises(GuestCommandInvalid):
        guest.run(command, **options)


def test_output_beyond_the_limit_is_read_and_dropped(guest: Guest):
    result = guest.run("head -c 3000000 /dev/zero; echo end >&2", max_output=1000)
    assert len(result.stdout) == 1000
    assert result.stderr == b"end\n"
    assert result.truncated
    assert result.exit_code == 0


def test_a_background_process_does_not_block_the_command(guest: Guest):
    started = time.monotonic()
    assert guest.run("sleep 20 >/dev/null 2>&1 & echo hi").stdout == b"hi\n"
    assert time.monotonic() - started < 18


def test_a_file_of_eight_mebibytes_round_trips(guest: Guest):
    data = os.urandom(8 << 20)
    assert guest.write("deep/er/data", *(data[i : i + 300_000] for i in range(0, len(data), 300_000))) == len(data)
    assert guest.read("deep/er/data") == data
    assert guest.read("deep/er/data", offset=70_000, length=200_001) == data[70_000:270_001]
    assert guest.read("deep/er/data", offset=len(data)) == b""


def test_an_empty_file(guest: Guest):
    assert guest.write("empty") == 0
    assert guest.read("empty") == b""


def test_a_failed_write_keeps_the_old_file_and_leaves_no_partial_file(guest: Guest):
    guest.write("file", b"old")
    with pytest.raises(RuntimeError):
        guest.call(lambda session: session.write(f"{guest.inside}/file", failing_stream()))
    assert guest.read("file") == b"old"
    assert [entry.name for entry in guest.names()[0]] == ["file"]


def test_the_file_mode_is_preserved_or_set(guest: Guest):
    guest.write("script", b"1", mode=0o750)
    guest.write("script", b"2")
    assert guest.call(lambda session: session.stat(f"{guest.inside}/script")).mode == 0o750
    guest.write("plain", b"")
    assert guest.call(lambda session: session.stat(f"{guest.inside}/plain")).mode == 0o644


def test_writing_through_a_symlink_keeps_the_symlink(guest: Guest):
    guest.write("real", b"old")
    (guest.outside / "link").symlink_to("real")
    guest.write("link", b"new")
    assert (guest.outside / "link").is_symlink()
    assert guest.read("real") == b"new"


def test_a_listing_is_sorted_typed_and_bounded(guest: Guest):
    for name in ("b", "a"):
        guest.write(name, b"xyz")
    (guest.outside / "d").mkdir()
    (guest.outside / "loop").symlink_to("loop")
    entries, more = guest.names()
    assert [(e.name, e.type) for e in entries] == [
        ("a", "file"), ("b", "file"), ("d", "directory"), ("loop", "symlink"),
    ]  # fmt: skip
    assert more is False
    assert entries[0].size == 3
    assert entries[3].target == "loop"
    short, more = guest.names(limit=2)
    assert (len(short), more) == (2, True)


def test_hostile_names_are_data(guest: Guest):
    names = [b"-rf", b"a\nb", b"\xff\xfe", b"$(id)", b"..x", "ü".encode(), b"a;b"]
    for name in names:
        (guest.outside / os.fsdecode(name)).write_bytes(name)
    entries, _ = guest.names()
    assert {os.fsencode(entry.name) for entry in entries} == set(names)
    for entry in entries:
        assert guest.read(entry.name) == os.fsencode(entry.name)


def test_missing_paths_are_not_found(guest: Guest):
    for call in (
        lambda: guest.read("none"),
        lambda: guest.names("none"),
        lambda: guest.call(lambda session: session.stat(f"{guest.inside}/none/below")),
    ):
        with pytest.raises(GuestPathNotFound):
            call()


def test_the_wrong_kind_of_path_is_refused(guest: Guest):
    guest.write("dir/file", b"1")
    os.mkfifo(guest.outside / "fifo")
    (guest.outside / "loop").symlink_to("loop")
    with pytest.raises(GuestPathInvalid):
        guest.read("dir")
    with pytest.raises(GuestPathInvalid):
        guest.read("fifo")
    with pytest.raises(GuestPathInvalid):
        guest.names("dir/file")
    with pytest.raises(GuestPathInvalid):
        guest.write("dir", b"x")
    with pytest.raises(GuestPathInvalid):
        guest.write("fifo", b"x")
    with pytest.raises(GuestPathInvalid):
        guest.write("dir/file/below", b"x")
    with pytest.raises((GuestPathInvalid, GuestPathNotFound)):
        guest.read("loop")
    with pytest.raises((GuestPathInvalid, GuestPathNotFound)):
        guest.write("loop", b"x")
    for path in ("relative", "/nul\0", "/" + "x" * 5000):
        with pytest.raises(GuestPathInvalid):
            guest.call(lambda session, path=path: session.stat(path))


def test_disk_usage_and_sync(guest: Guest):
    usage = guest.call(lambda session: session.disk_usage())
    assert 0 <= usage.available_bytes <= usage.total_bytes
    guest.call(lambda session: session.sync())


def test_a_reader_that_stops_early_releases_the_session(guest: Guest):
    guest.write("big", b"x" * (4 << 20))
    chunks = guest.pool.stream(guest.address, lambda session: session.read(f"{guest.inside}/big"))
    next(chunks)
    chunks.close()
    assert guest.run("echo well").stdout == b"well\n"
