"""The processes of an instance: what runs, in which order, and how long each may take to stop.

`Procfile` in the project's root is generated from this list (`supervise.procfile`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from config.database import host_of_url
from config.env import Env
from supervise.instance import Instance
from supervise.launcher import LISTENER_FD
from supervise.orphans import DATABASE_ROLE
from supervise.postgres import data_folder, server_command
from supervise.redis_configuration import redis_users_file
from vmbackend.power import GUEST_END_SECONDS

TOOLS = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Process:
    """One supervised process, stopped by `stop_signal`; killed when `stop_seconds` have passed.

    `role`: of the machines on which it runs. `after`: the data folder of a database server that it waits for.
    `is_launcher`: the command itself clears away what a killed predecessor left. `socket` is the Unix socket that it
    listens on, named in its command by `--uds`. supervisord opens it, and keeps it open while the process restarts;
    there the command has `--fd` instead.
    """

    name: str
    command: tuple[str, ...]
    role: str = "control"
    stop_seconds: int = 10
    start_seconds: int = 2
    socket: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "TERM"
    after: Path | None = None
    is_launcher: bool = False

    def wrapped(self) -> tuple[str, ...]:
        """Return the command behind the launcher, which clears away what a killed predecessor left."""
        if self.is_launcher:
            return self.command
        listener = ("--listener",) if self.socket else ()
        after = ("--after", str(self.after)) if self.after else ()
        variables = [f"{key}={value}" for key, value in self.environment.items()]
        command = ("env", *variables, *self._inheriting_command()) if variables else self._inheriting_command()
        return (sys.executable, "-m", "supervise.launcher", self.name, *listener, *after, "--", *command)

    def _inheriting_command(self) -> tuple[str, ...]:
        if self.socket is None:
            return self.command
        at = self.command.index("--uds")
        return (*self.command[:at], "--fd", str(LISTENER_FD), *self.command[at + 2 :])


def processes(instance: Instance, settings: Env) -> list[Process]:
    """Return the processes of this machine, in the order in which they start; they stop in the reverse order."""
    listed = [
        _api(instance, settings),
        _streams(instance),
        _worker(settings),
        _hooks(),
        _pages(settings),
        _push(),
        _media(settings),
        _vmhost(settings),
        _beat(),
    ]
    # The platform does not start a PostgreSQL or a Redis that the operator configured.
    if settings.has_own_server:
        listed = [_postgres(instance), *(replace(process, after=data_folder(instance)) for process in listed)]
    listed.append(_edge(instance))
    if settings.has_own_redis:
        listed.insert(0, _redis(instance))
    return [process for process in listed if process.role in settings.machine_roles]


def _tool(name: str) -> str:
    return str(TOOLS / name)


def _redis(instance: Instance) -> Process:
    # No persistence on purpose: Redis holds notifications, wake-ups, recent samples and rate windows. Every fact is a
    # row of the database, and a sweep notifies again for operations whose task was lost.
    return Process(
        "redis",
        (
            "redis-server",
            # What it needs on a network, if that was opened (supervise/network.py).
            f"{instance.run_dir}/redis.conf",
            *("--port", "0"),
            *("--unixsocket", f"{instance.run_dir}/redis.sock", "--unixsocketperm", "600"),
            *("--save", "", "--appendonly", "no"),
            # Nothing saves; but after a BGSAVE by hand that met a full disk, Redis would refuse every write.
            *("--stop-writes-on-bgsave-error", "no"),
            # The users of hosts, and the hashes of their passwords.
            *("--aclfile", str(redis_users_file(instance))),
            *("--dir", str(instance.run_dir), "--daemonize", "no", "--logfile", ""),
            # Its title would overwrite its environment in /proc, from which orphans are recognised.
            *("--set-proc-title", "no"),
            # A broker that evicts loses messages silently; one that refuses raises an error.
            *("--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
        ),
    )


def _postgres(instance: Instance) -> Process:
    return Process(
        DATABASE_ROLE,
        server_command(instance),
        # Ends the sessions of commands that still run, and writes what only its log has so far.
        stop_signal="INT",
        stop_seconds=60,
        is_launcher=True,
    )


def _api(instance: Instance, settings: Env) -> Process:
    return Process(
        "api",
        (
            *(_tool("python"), "-m", "config.serve_wsgi", "--uds", f"{instance.run_dir}/api.sock"),
            *("--workers", str(settings.api_workers), "--threads", str(settings.api_threads)),
            *("--log-format", settings.log_format),
        ),
        stop_seconds=15,
        socket=f"{instance.run_dir}/api.sock",
    )


def _streams(instance: Instance) -> Process:
    return Process(
        "streams",
        (_tool("python"), "-m", "config.serve_asgi", "--uds", f"{instance.run_dir}/streams.sock"),
        socket=f"{instance.run_dir}/streams.sock",
    )


def _celery(*arguments: str) -> tuple[str, ...]:
    return (_tool("python"), "-m", "config.serve_tasks", *arguments)


def _celery_worker(name: str, queues: str, *pool: str) -> tuple[str, ...]:
    # Nothing listens to the events that workers would send each other and to monitors, every two seconds.
    silent = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return _celery("worker", *pool, "-Q", queues, "-n", f"{name}@%h", "-l", "info", *silent)


def _worker(settings: Env) -> Process:
    command = _celery_worker("worker", "default", "-c", str(settings.worker_processes))
    return Process("worker", command, stop_seconds=30, start_seconds=4)


def _hooks() -> Process:
    # One thread for notifications; those that send are the process's own (webhooks/dispatcher.py).
    command = _celery_worker("hooks", "webhooks", "--pool", "threads", "-c", "1")
    # An attempt of 15 s, what is written after it, and the end of Celery.
    return Process("hooks", command, stop_seconds=30, start_seconds=4)


def _pages(settings: Env) -> Process:
    # For each deploy that gets on three that wait for slow guests (pages/deploys/places.py), and two for what takes a
    # moment. A process that is stopped in a deploy leaves the deploy to its successor.
    pool = ("--pool", "threads", "-c", str(settings.pages_threads * 4 + 2))
    return Process("pages", _celery_worker("pages", "pages", *pool), "files", stop_seconds=30, start_seconds=4)


def _push() -> Process:
    # One thread for notifications; those that send are the process's own (notifications/sends/dispatcher.py).
    command = _celery_worker("push", "push", "--pool", "threads", "-c", "1")
    # An attempt of 10 s, what is written after it, and the end of Celery.
    return Process("push", command, stop_seconds=30, start_seconds=4)


def _media(settings: Env) -> Process:
    pool = ("--pool", "threads", "-c", str(settings.cdn_media_processes))
    # Looking at a file takes 30 s at most; what is stored after it is left to the next attempt.
    return Process("media", _celery_worker("media", "media", *pool), "files", stop_seconds=40, start_seconds=4)


def _vmhost(settings: Env) -> Process:
    pool = ("--pool", "threads", "-c", str(settings.vmhost_threads))
    # Nothing sends to `vmhost`: it adds the queue of its host, whose id it learns from the database. One with
    # credentials of its own has the right to that queue alone.
    own = host_of_url(settings.database_url)
    command = _celery_worker("vmhost", f"host.{own}" if own else "vmhost", *pool)
    # A save of a large machine's memory or a clean shutdown of all machines, many at a time, must fit in.
    stop_seconds = 60 + settings.stop_grace_seconds + GUEST_END_SECONDS
    return Process("vmhost", command, "host", stop_seconds=stop_seconds, start_seconds=4)


def _beat() -> Process:
    return Process("beat", _celery("beat", "--pidfile=", "-l", "warning"))


def _edge(instance: Instance) -> Process:
    return Process(
        "edge",
        (_tool("caddy"), "run", "--config", f"{instance.run_dir}/Caddyfile", "--adapter", "caddyfile"),
        "edge",
        environment={
            # Certificates and keys belong to the instance, not to the home of the user who started it (under systemd
            # there is none).
            "HOME": f"{instance.state}/edge",
            "XDG_CONFIG_HOME": f"{instance.state}/edge/config",
            "XDG_DATA_HOME": f"{instance.state}/edge/data",
            # The machines have the other half of the processors; and what an idle one costs to be kept at hand is a
            # third of a request (docs/decisions/edge.md).
            "GOMAXPROCS": str(max(1, len(os.sched_getaffinity(0)) // 2)),
            # Some 20 MiB more for fewer collections. Bodies that it holds would take five times their size with it, so
            # beyond the limit there are as many collections as it takes.
            "GOGC": "400",
            "GOMEMLIMIT": "256MiB",
        },
    )
