"""Faults of what the platform stores in and opens: disk, inodes, descriptors, database, Redis. As `faults`."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import redis

from tests.chaos.processes import processes_of
from tests.chaos.world import World

NOTHING = "nothing to hit"
BLOCK = 4096
# Each state change, each event and each charge writes to one of these.
LOCKED = ("workspaces_workspace", "workspaces_operation", "webhooks_event", "credits_balance")


@contextmanager
def fill_disk(world: World, pick: int) -> Iterator[str]:
    """No byte is left on the file system of the state folder."""
    filler = world.folder / "filler"
    try:
        _fill(filler)
        yield f"{filler.stat().st_size >> 20} MiB"
    finally:
        filler.unlink(missing_ok=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (64 << 20, 1 << 20, BLOCK):
            with suppress(OSError):
                while True:
                    at = file.seek(0, os.SEEK_END)
                    os.posix_fallocate(file.fileno(), at, size)


@contextmanager
def fill_inodes(world: World, pick: int) -> Iterator[str]:
    """No file can be created on it: all inodes are taken. Names of one file would not take any."""
    folder, count = world.folder / "inodes", 0
    try:
        folder.mkdir()
        with suppress(OSError):
            while True:
                os.close(os.open(folder / str(count), os.O_CREAT | os.O_WRONLY))
                count += 1
        yield f"{count} files"
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@contextmanager
def take_descriptors(role: str, world: World, pick: int) -> Iterator[str]:
    """The processes of one role can open some few more files and sockets, or none."""
    mains, children = processes_of(world.instance, role)
    former: dict[int, tuple[int, int]] = {}
    for pid in mains + children:
        with suppress(OSError):
            highest = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())
            former[pid] = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + pick % 4, former[pid][1]))
    try:
        yield f"{sorted(former)}" if former else NOTHING
    finally:
        for pid, limits in former.items():
            with suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@contextmanager
def lock_database(world: World, pick: int) -> Iterator[str]:
    """A transaction that does not end keeps all others from writing to a table."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(psycopg.connect(world.instance.settings.database_url)))
            connection.execute("SET lock_timeout = '20s'")
            hit = LOCKED[pick % len(LOCKED)]
            connection.execute(f"LOCK TABLE {hit} IN EXCLUSIVE MODE".encode())
        except psycopg.Error as error:  # another fault has locked it, or the server is down
            hit = f"{NOTHING}: {error}"
        yield hit


@contextmanager
def cut_connections(world: World, pick: int) -> Iterator[str]:
    """Every connection to the database is cut, as by a restart of the server."""
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    try:
        with closing(psycopg.connect(world.instance.settings.database_url)) as connection:
            cut = connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}".encode())
            hit = f"{len(cut.fetchall())} connections"
    except psycopg.Error as error:
        hit = f"{NOTHING}: {error}"
    yield hit


@contextmanager
def flush_redis(world: World, pick: int) -> Iterator[str]:
    with _redis(world) as client:
        try:
            hit = f"{client.dbsize()} keys"
            client.flushall()
        except redis.RedisError as error:  # it is down or stopped by another fault
            hit = f"{NOTHING}: {error}"
    yield hit


@contextmanager
def fill_redis(world: World, pick: int) -> Iterator[str]:
    """Nothing can be stored in it any more; a Redis that is restarted in between has its own limit again."""
    try:
        yield _ask(world, "CONFIG", "SET", "maxmemory", "1")
    finally:
        _ask(world, "CONFIG", "SET", "maxmemory", "256mb")


@contextmanager
def make_redis_read_only(world: World, pick: int) -> Iterator[str]:
    """As after a fail-over: the replica of a server that is gone."""
    try:
        yield _ask(world, "REPLICAOF", "127.0.0.1", "1")
    finally:
        _ask(world, "REPLICAOF", "NO", "ONE")


@contextmanager
def disconnect_redis(world: World, pick: int) -> Iterator[str]:
    """Every connection is cut, those that wait for messages too."""
    yield " and ".join(_ask(world, "CLIENT", "KILL", "TYPE", kind) for kind in ("normal", "pubsub"))


def _ask(world: World, *command: str) -> str:
    with _redis(world) as client:
        try:
            return str(client.execute_command(*command))
        except redis.RedisError as error:
            return f"{NOTHING}: {error}"


def _redis(world: World) -> redis.Redis:
    return redis.Redis.from_url(world.instance.settings.redis_url, socket_timeout=5)
