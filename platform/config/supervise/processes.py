"""The processes of an instance: what runs, in which order, and how long each may take to stop.

`Procfile` in the project's root documents the same list for readers and for other process managers; a test
keeps the two in step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from config.instance import ROOT, Instance


@dataclass(frozen=True, slots=True)
class Process:
    """One supervised process. Stopped by SIGTERM; killed when `stop_seconds` have passed."""

    name: str
    command: tuple[str, ...]
    stop_seconds: int = 10
    start_seconds: int = 2
    socket: str | None = None

    def wrapped(self) -> tuple[str, ...]:
        """The command behind the launcher that clears away what a killed predecessor left."""
        clear = ("--socket", self.socket) if self.socket else ()
        return (sys.executable, "-m", "config.supervise.child", self.name, *clear, "--", *self.command)


def processes(instance: Instance, settings: Mapping[str, str]) -> list[Process]:
    """All processes, in the order in which they start; they stop in the reverse order."""
    listed = [
        _api(instance, settings),
        _streams(instance),
        _worker(settings),
        _vmhost(settings),
        _beat(instance),
        _edge(instance),
    ]
    # A Redis that somebody else runs is not ours to start.
    if settings["PLATFORM_REDIS_URL"] == f"unix://{instance.run_dir}/redis.sock":
        listed.insert(0, _redis(instance))
    return listed


def _tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def _redis(instance: Instance) -> Process:
    # No persistence on purpose: Redis holds doorbells, wake-ups, recent samples and rate windows. Every fact
    # is a row of the database, and a sweep rings again for operations whose doorbell was lost.
    return Process(
        "redis",
        (
            "redis-server",
            *("--port", "0"),
            *("--unixsocket", f"{instance.run_dir}/redis.sock", "--unixsocketperm", "600"),
            *("--save", "", "--appendonly", "no"),
            *("--dir", str(instance.run_dir), "--daemonize", "no", "--logfile", ""),
            # Its title would overwrite its environment in /proc, where the instance's mark is looked for.
            *("--set-proc-title", "no"),
            # A broker that evicts loses messages in silence; one that refuses is heard.
            *("--maxmemory", "256mb", "--maxmemory-policy", "noeviction"),
        ),
    )


def _api(instance: Instance, settings: Mapping[str, str]) -> Process:
    return Process(
        "api",
        (
            *(_tool("granian"), "--interface", "wsgi", "config.wsgi:application"),
            *("--uds", f"{instance.run_dir}/api.sock", "--uds-permissions", "0o600"),
            *("--workers", settings.get("PLATFORM_API_WORKERS", "2")),
            *("--blocking-threads", settings.get("PLATFORM_API_THREADS", "32")),
            *("--respawn-failed-workers", "--workers-kill-timeout", "10"),
            # Also ends connections that idle so long (ms; the most it takes): the edge must have given them up before.
            *("--http1-header-read-timeout", "60000"),
            "--no-access-log",
        ),
        stop_seconds=15,
        socket=f"{instance.run_dir}/api.sock",
    )


def _streams(instance: Instance) -> Process:
    return Process(
        "streams",
        (
            *(_tool("uvicorn"), "config.asgi:application"),
            *("--uds", f"{instance.run_dir}/streams.sock"),
            # Without it open event streams hold a stopping process for minutes.
            *("--timeout-graceful-shutdown", "3"),
            # Longer than the edge keeps an idle connection. One that is closed here while a request comes in on it is
            # a 503 to the caller, as the edge repeats nothing with a body.
            *("--timeout-keep-alive", "180"),
            *("--no-access-log", "--no-server-header"),
            # Only Caddy can open the socket, so its X-Forwarded-* are true.
            *("--proxy-headers", "--forwarded-allow-ips", "*"),
        ),
        socket=f"{instance.run_dir}/streams.sock",
    )


def _celery(*arguments: str) -> tuple[str, ...]:
    return (_tool("celery"), "-A", "config.celery", *arguments)


def _worker(settings: Mapping[str, str]) -> Process:
    concurrency = settings.get("PLATFORM_WORKER_PROCESSES", "2")
    return Process(
        "worker",
        _celery(
            "worker",
            "-Q",
            "default",
            "-c",
            concurrency,
            "-n",
            "worker@%h",
            "-l",
            "info",
            "--without-gossip",
            "--without-mingle",
        ),
        stop_seconds=30,
        start_seconds=4,
    )


def _vmhost(settings: Mapping[str, str]) -> Process:
    queue = f"host.{settings['PLATFORM_HOST_NAME']}"
    threads = settings.get("PLATFORM_VMHOST_THREADS", "32")
    return Process(
        "vmhost",
        _celery(
            *("worker", "--pool", "threads", "-c", threads, "-Q", queue),
            *("-n", "vmhost@%h", "-l", "info", "--without-gossip", "--without-mingle"),
        ),
        # A save of a large machine's memory or a clean shutdown of all machines must fit in.
        stop_seconds=90,
        start_seconds=4,
    )


def _beat(instance: Instance) -> Process:
    return Process(
        "beat",
        _celery(
            *("beat", "--schedule", f"{instance.run_dir}/beat-schedule"),
            *("--pidfile=", "-l", "warning"),
        ),
    )


def _edge(instance: Instance) -> Process:
    return Process(
        "edge",
        (
            # Certificates and keys belong to the instance, not to the home of whoever started it.
            *(
                "env",
                f"XDG_CONFIG_HOME={instance.state}/edge/config",
                f"XDG_DATA_HOME={instance.state}/edge/data",
                # The machines have the other half of the processors; and what an idle one costs to be kept at hand is a
                # third of a request (docs/decisions.md, Public ports).
                f"GOMAXPROCS={max(1, len(os.sched_getaffinity(0)) // 2)}",
                # Some 20 MiB more for fewer collections.
                "GOGC=400",
            ),
            *("caddy", "run", "--config", f"{instance.run_dir}/Caddyfile", "--adapter", "caddyfile"),
        ),
    )


PYTHONPATH = f"{ROOT}:{ROOT / 'platform'}"
