"""The supervisor and the database on a disk that is full for a while: the real ones, with stub processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from supervise import control
from supervise.instance import Instance, InstanceError, load_instance
from supervise.postgres import data_folder
from supervise.postgres_processes import is_ready
from supervise.prepare import prepare_instance
from tests.commands.conftest import sleeping_process
from tests.commands.own_servers import put_empty_database
from tests.commands.running import processes_named
from tests.commands.test_supervise import processes_of, running, silent, start, wait_until
from tests.free_ports import free_port
from tests.processes import is_running
from tests.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.host

# Prints a line of 4 KiB ten times a second: the log is written to, and rotated, all the time.
TALKING = """
import threading
def talk():
    while True:
        print('x' * 4095, flush=True)
        time.sleep(0.01)
threading.Thread(target=talk, daemon=True).start()
"""


@pytest.fixture
def disk(short_dir: Path) -> Iterator[SmallDisk]:
    with small_disk(short_dir, 80) as mounted:
        yield mounted


@pytest.fixture
def instance(disk: SmallDisk) -> Iterator[Instance]:
    made = load_instance(disk.folder / "one", free_port())
    yield made
    disk.make_room()
    control.stop_instance(made, silent)


@pytest.fixture
def large_disk(short_dir: Path) -> Iterator[SmallDisk]:
    with small_disk(short_dir, 300) as mounted:
        yield mounted


@pytest.fixture
def with_database(
    large_disk: SmallDisk, own_server: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Instance, str]]:
    """An instance whose PostgreSQL runs, and the address of its database."""
    made = load_instance(large_disk.folder / "one", free_port())
    put_empty_database(made)
    try:
        start(made, monkeypatch, *processes_named(made, "postgres"))
        wait_until(lambda: is_ready(data_folder(made)))
        yield made, made.settings({}).database_url
    finally:
        large_disk.make_room()
        control.stop_instance(made, silent)


def stored(url: str) -> set[int] | None:
    """None where the database does not answer."""
    try:
        with psycopg.connect(url) as connection:
            return {value for (value,) in connection.execute("SELECT number FROM kept").fetchall()}
    except psycopg.OperationalError:
        return None


def write_until_it_fails(url: str, answered: set[int]) -> None:
    """A row of a megabyte that does not shrink in each transaction; `answered` gets the numbers of those stored."""
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        while True:
            number = len(answered)
            connection.execute("INSERT INTO kept VALUES (%s, %s)", [number, os.urandom(1 << 20)])
            answered.add(number)


def test_the_database_is_back_by_itself_once_a_full_disk_has_room(
    large_disk: SmallDisk, with_database: tuple[Instance, str]
) -> None:
    """PostgreSQL ends if its log of writes cannot grow."""
    instance, url = with_database
    before = running(instance)["postgres"]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (number int, content bytea)")
    large_disk.fill(leave_mb=30)
    answered: set[int] = set()
    write_until_it_fails(url, answered)
    assert answered
    # The log has room in its last file while tables have none: what is written has to be the log itself.
    large_disk.fill()
    wait_until(lambda: has_ended(url, before, instance), 120)
    large_disk.make_room()
    wait_until(lambda: stored(url) is not None, 120)
    assert answered <= (stored(url) or set())
    write_number = len(answered) + 1
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO kept VALUES (%s, '')", [write_number])
    assert write_number in (stored(url) or set())


def has_ended(url: str, before: int, instance: Instance) -> bool:
    """Write more of the log, without a table that grows, until the server cannot."""
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        for _ in range(64):
            connection.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 1 << 20))")
    return running(instance).get("postgres") != before or stored(url) is None


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_the_supervisor_outlasts_a_full_disk(
    disk: SmallDisk, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = start(instance, monkeypatch, sleeping_process("a", TALKING), sleeping_process("b"))
    log = instance.log_dir / "a.log"
    before = running(instance)
    disk.fill()
    at_full = size(log)
    # What it logs then (deaths, starts) cannot be written, nor can what the processes print.
    for name in ("a", "b"):
        os.kill(before[name], signal.SIGKILL)
    wait_until(lambda: all(running(instance).get(name, before[name]) != before[name] for name in ("a", "b")))
    os.kill(running(instance)["b"], signal.SIGKILL)
    assert size(log) <= at_full + 4096
    assert supervisor.poll() is None
    disk.make_room()
    wait_until(lambda: size(log) > at_full + 40_960)
    wait_until(lambda: set(running(instance)) == {"a", "b"})
    assert "Lines before this one were lost" in log.read_text()
    assert supervisor.poll() is None
    assert control.stop_instance(instance, silent)
    assert not is_running(supervisor.pid)


def test_a_log_that_rotates_on_a_full_disk_is_written_again(
    disk: SmallDisk, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from supervise import configuration

    monkeypatch.setattr(configuration, "_PROGRAM", configuration._PROGRAM.replace("= 10MB", "= 200KB"))
    start(instance, monkeypatch, sleeping_process("a", TALKING))
    log, older = instance.log_dir / "a.log", instance.log_dir / "a.log.1"
    wait_until(lambda: older.exists())
    # Small steps: the disk is full at many points of a rotation.
    for _ in range(20):
        disk.fill()
        disk.make_room()
    disk.fill()
    disk.make_room()
    written = older.stat().st_mtime_ns
    wait_until(lambda: older.stat().st_mtime_ns != written and size(log) > 0)


def test_an_instance_on_a_disk_that_only_reads_is_asked_and_stopped(
    disk: SmallDisk, instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What file systems do after an error of their disk."""
    with control.exclusive_control(instance):
        start(instance, monkeypatch, sleeping_process("a"))
    # Not by remounting it, which needs that no file is open: as the commands see it, by a mount of their own.
    subprocess.run(["mount", "--bind", str(disk.folder), str(disk.folder)], check=True, timeout=120)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk.folder)], check=True, timeout=120)
        again = load_instance(instance.state, instance.port)
        assert again == instance
        assert set(running(again)) == {"a"}
        with control.exclusive_control(again):
            assert control.stop_instance(again, silent)
        assert processes_of(again) == []
    finally:
        subprocess.run(["umount", "--lazy", str(disk.folder)], check=True, timeout=120)


@pytest.mark.parametrize("free_mb", [10, 30, 60])
def test_a_database_that_has_no_room_to_be_made_is_a_sentence(
    own_server: None, disk: SmallDisk, instance: Instance, free_mb: int
) -> None:
    """Its files have no room; nor the log of writes; nor the first migrations, in which the server ends."""
    disk.fill(leave_mb=free_mb)
    with pytest.raises(InstanceError, match=r"^The database's disk is full: free some room"):
        prepare_instance(instance, instance.settings({"PLATFORM_VM_BACKEND": "fake"}))
    disk.make_room()
    assert {path.name for path in data_folder(instance).parent.iterdir()} <= {"data"}
