"""A small instance with one of everything that a backup has, without processes and machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from supervise.instance import Instance, load_instance
from tests.commands.own_servers import own_database, put_empty_database

ASLEEP, STOPPED = "ws_aaaaaaaaaaaaaaaa", "ws_bbbbbbbbbbbbbbbb"
DISK_MB = 16
FILES = {
    "secrets.env": "PLATFORM_SECRET_KEY=of-the-original\n",
    "settings.env": "PLATFORM_LOG_LEVEL=ERROR\n",
    "pages/releases/r1/index.html": "<p>page</p>",
    "cdn/store/ab/file": "cdn",
    "domains/certificates/example.org.pem": "certificate",
    "keys/key": "key",
}

FIRST = (("accounts", "0001_initial"),)


def silent(_: str) -> None:
    """What nothing is said to."""


def fill(instance: Instance, migrations: tuple[tuple[str, str], ...] = FIRST) -> None:
    for name, content in FILES.items():
        write(instance.state / name, content)
    write(instance.state / "cache" / "images" / "images" / "f00d" / "root.img", "image")
    write(instance.state / "cache" / "images" / "oci" / "index.json", "{}")
    write(instance.state / "cache" / "kit" / "k1" / "vmlinuz", "kernel")
    for name in (ASLEEP, STOPPED):
        make_machine(instance, name)
    write(instance.state / "machines" / ASLEEP / "memory", "memory")
    store = instance.state / "machines" / ".store"
    for name in ("snap_one/manifest.json", "snap_one/disk-0.raw", "boot_one/memory", ".new-1/memory"):
        write(store / name, "of the store")
    definition = f"<domain><source file='{instance.state}/machines/{ASLEEP}/data.raw'/></domain>"
    write(instance.state / "libvirt" / "etc" / "qemu" / f"{ASLEEP}.xml", definition)
    put_empty_database(instance)
    with own_database(instance) as connection:
        fill_database(connection, migrations)


def fill_database(connection: psycopg.Connection[Any], migrations: tuple[tuple[str, str], ...] = FIRST) -> None:
    connection.execute("CREATE TABLE django_migrations (app text, name text)")
    connection.execute("CREATE TABLE things (name text)")
    connection.cursor().executemany("INSERT INTO django_migrations VALUES (%s, %s)", migrations)
    connection.execute("INSERT INTO things VALUES ('kept')")


def make_machine(instance: Instance, name: str) -> Path:
    folder = instance.state / "machines" / name
    write(folder / "machine.json", "{}")
    os.mkfifo(folder / "events.out", 0o600)
    with (folder / "data.raw").open("wb") as disk:
        disk.truncate(DISK_MB << 20)
        disk.seek(5 << 20)
        disk.write(b"content of the guest")
    return folder


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def things(state: Path) -> list[str]:
    with own_database(load_instance(state)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM things").fetchall()]


def assert_is_restored(state: Path) -> None:
    for name, content in FILES.items():
        assert (state / name).read_text().startswith(content), name
    assert things(state) == ["kept"]
    for name in (ASLEEP, STOPPED):
        disk = state / "machines" / name / "data.raw"
        assert disk.stat().st_size == DISK_MB << 20
        assert disk.read_bytes()[5 << 20 :].startswith(b"content of the guest")
        assert disk.stat().st_blocks * 512 < 1 << 20, "the disk is not sparse any more"
    assert (state / "machines" / ASLEEP / "memory").read_text() == "memory"
    assert (state / "cache" / "kit" / "k1" / "vmlinuz").read_text() == "kernel"
    assert (state / "cache" / "images" / "images" / "f00d" / "root.img").read_text() == "image"
    assert not (state / "restoring").exists()


@contextmanager
def running_machine(instance_id: str, name: str) -> Iterator[None]:
    """A process with the command line of a machine's."""
    code = "import time; print(flush=True); time.sleep(600)"
    arguments = ["qemu-system-test", "-c", code, f"guest=mvm-{instance_id}-{name},debug-threads=on"]
    with subprocess.Popen(arguments, executable=sys.executable, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def was_killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a process that is killed right before its step of this number (the first is 1); False: it has
    fewer. Steps: each program that is run, each rename.
    """
    child = os.fork()
    if not child:
        _count_steps(step)
        work()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _count_steps(last: int) -> None:
    done = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*given, **named)

        return call

    subprocess.run = counted(subprocess.run)
    for name in ("rename", "replace"):
        setattr(Path, name, counted(getattr(Path, name)))
