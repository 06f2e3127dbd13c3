"""The faults. Each is a context: it hits at its entry, says what it hit, and what it began ends at its exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from supervise import control
from tests.chaos import storage
from tests.chaos.processes import processes_of, send
from tests.chaos.world import World
from tests.vm.onhost import machine_pids, saved_memory

Fault = Callable[[World, int], AbstractContextManager[str]]
T = TypeVar("T")
NOTHING = storage.NOTHING
BLOCK = storage.BLOCK


def chosen(candidates: Sequence[T], pick: int) -> T | None:
    return candidates[pick % len(candidates)] if candidates else None


# Processes


@contextmanager
def kill_main(role: str, world: World, pick: int) -> Iterator[str]:
    mains, _ = processes_of(world.instance, role)
    send(signal.SIGKILL, mains)
    yield f"{mains}" if mains else NOTHING


@contextmanager
def kill_child(role: str, world: World, pick: int) -> Iterator[str]:
    _, children = processes_of(world.instance, role)
    pid = chosen(children, pick)
    send(signal.SIGKILL, [pid] if pid else [])
    yield str(pid or NOTHING)


@contextmanager
def freeze(role: str, world: World, pick: int) -> Iterator[str]:
    """A process and all it started exist and do not answer."""
    mains, children = processes_of(world.instance, role)
    send(signal.SIGSTOP, mains + children)
    try:
        yield f"{mains + children}"
    finally:
        send(signal.SIGCONT, mains + children)


@contextmanager
def kill_at_step(world: World, pick: int) -> Iterator[str]:
    """vmhost ends just before a step of an operation, the next time that it comes to it."""
    steps = world.instance.query("SELECT DISTINCT kind, step FROM workspaces_operation WHERE step <> '' ORDER BY 1, 2")
    point = chosen([f"{kind}.{step}" for kind, step in steps], pick)
    file = world.instance.faults / f"{point}.kill"
    if point:
        file.touch()
    try:
        yield point or NOTHING
    finally:
        file.unlink(missing_ok=True)


# The whole instance: no supervisor is left, so that the run starts it again, as an init system does


@contextmanager
def kill_supervisor(world: World, pick: int) -> Iterator[str]:
    """Its processes live on unsupervised until the next start ends them."""
    pid = control.supervisor_pid(world.instance.instance)
    send(signal.SIGKILL, [pid] if pid else [])
    try:
        yield str(pid)
    finally:
        world.bring_up()


@contextmanager
def kill_all(world: World, pick: int) -> Iterator[str]:
    """Every process but the machines."""
    count = _kill_platform(world)
    try:
        yield f"{count} processes"
    finally:
        world.bring_up()


@contextmanager
def power_off(world: World, pick: int) -> Iterator[str]:
    """Every process and every machine; what sleeps has its memory on the disk."""
    count = _kill_platform(world)
    machines = machine_pids(world.instance)
    world.ledger.lose_memory(*machines)
    send(signal.SIGKILL, machines.values())
    try:
        yield f"{count} processes, {len(machines)} machines"
    finally:
        world.bring_up()


def _kill_platform(world: World) -> int:
    pid = control.supervisor_pid(world.instance.instance)
    send(signal.SIGKILL, [pid] if pid else [])
    pids = list(world.instance.process_tree())
    send(signal.SIGKILL, pids)
    return len(pids) + 1


@contextmanager
def restart(world: World, pick: int) -> Iterator[str]:
    """`make down`, and `make up` after the hold."""
    world.instance.stop()
    try:
        yield "stopped"
    finally:
        world.bring_up()


# Machines


@contextmanager
def kill_machine(world: World, pick: int) -> Iterator[str]:
    found = chosen(sorted(machine_pids(world.instance).items()), pick)
    if found:
        world.ledger.lose_memory(found[0])
        send(signal.SIGKILL, [found[1]])
        world.ledger.lose_memory(found[0])
    yield f"{found[0]}" if found else NOTHING


@contextmanager
def freeze_machine(world: World, pick: int) -> Iterator[str]:
    found = chosen(sorted(machine_pids(world.instance).items()), pick)
    send(signal.SIGSTOP, [found[1]] if found else [])
    try:
        yield f"{found[0]}" if found else NOTHING
    finally:
        send(signal.SIGCONT, [found[1]] if found else [])


@contextmanager
def damage_memory(damage: Callable[[Path], None], world: World, pick: int) -> Iterator[str]:
    """The file with a sleeping machine's memory; without one there is nothing to damage."""
    found = chosen(sorted(saved_memory(world.instance).items()), pick)
    if found:
        world.ledger.lose_memory(found[0])
        with suppress(FileNotFoundError):
            damage(found[1])
    yield f"{found[0]}" if found else NOTHING


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(os.urandom(BLOCK))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


# The lists

ROLES = ("postgres", "redis", "api", "streams", "worker", "hooks", "pages", "push", "media", "vmhost", "beat", "edge")
# They start the instance again, so no other fault is under way.
ALONE: dict[str, Fault] = {
    "kill supervisord": kill_supervisor,
    "kill everything": kill_all,
    "power off": power_off,
    "restart": restart,
}
FAULTS: dict[str, Fault] = {
    **{f"kill {role}": partial(kill_main, role) for role in ROLES},
    **{f"kill a child of {role}": partial(kill_child, role) for role in ("postgres", "api", "worker")},
    **{f"stop {role} for a while": partial(freeze, role) for role in ROLES},
    "kill vmhost at a step": kill_at_step,
    "kill a machine": kill_machine,
    "stop a machine for a while": freeze_machine,
    "overwrite saved memory": partial(damage_memory, overwrite),
    "truncate saved memory": partial(damage_memory, truncate),
    "delete saved memory": partial(damage_memory, lambda path: path.unlink()),
    **{f"no descriptors for {role}": partial(storage.take_descriptors, role) for role in ("api", "streams", "vmhost")},
    "full disk": storage.fill_disk,
    "no inode": storage.fill_inodes,
    "locked database": storage.lock_database,
    "disconnected database": storage.cut_connections,
    "flush Redis": storage.flush_redis,
    "full Redis": storage.fill_redis,
    "read-only Redis": storage.make_redis_read_only,
    "disconnected Redis": storage.disconnect_redis,
    **ALONE,
}
