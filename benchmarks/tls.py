"""New TLS connections to domains that users bring, beside a static certificate of the same edge, in turns.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.tls [--rounds 3] [--seconds 10] [--rate 200] [--names 1000]

An edge and an api of its own, with as many certificates as names; the api is asked at each handshake. Connections begin
at a fixed rate, whether or not earlier ones have ended, and resume no session; the time of each counts, and the
processor time that edge and api take for it. `--unknown`: names without a certificate, whose handshakes fail. `--one`:
all of one name.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import percentile
from benchmarks.databases import use_own_server

BAR_SECONDS = 0.1
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--names", type=int, default=1000)
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tls-", dir="/tmp") as folder,
        started(Path(folder), options.names) as (ports, servers),
    ):
        for name, port in ports.items():
            asyncio.run(connections(port, 20, 1, lambda: "n1.example.org"))  # the first ones of a process take longer
            print(f"  {name} is up", flush=True)
        for number in range(options.rounds):
            for title, port in ports.items():
                names = chooser(options) if title == "from the database" else lambda: "static.example.org"
                before = processor_seconds(servers)
                took, failed = asyncio.run(connections(port, options.rate, options.seconds, names))
                cost = (processor_seconds(servers) - before) / (options.rate * options.seconds)
                show_round(f"{number + 1}: {title}", took, failed, cost)
    print(f"  bar: p99 below {BAR_SECONDS * 1000:.0f} ms")


def chooser(options: argparse.Namespace) -> Callable[[], str]:
    if options.one:
        return lambda: "n0.example.org"
    suffix = "unknown.example.org" if options.unknown else "example.org"
    return lambda: f"n{random.randrange(options.names)}.{suffix}"


def show_round(title: str, seconds: list[float], failed: int, cost: float) -> None:
    parts = [f"{percentile(seconds, share) * 1000:.1f}" for share in (0.5, 0.95, 0.99, 1.0)] if seconds else []
    print(f"  {title:<20} {len(seconds)} made, {failed} failed, {cost * 1e6:.0f} us of processor each;", end=" ")
    print(f"ms p50 p95 p99 max: {' '.join(parts)}", flush=True)


def processor_seconds(servers: list[int]) -> float:
    """Of these processes and their children so far."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(path.parent.name) in servers or int(fields[1]) in servers:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def connections(port: int, rate: int, seconds: int, name: Callable[[], str]) -> tuple[list[float], int]:
    """Begin `rate` connections a second. The time of each that was made, and how many failed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    took: list[float] = []
    failed = 0

    async def connect() -> None:
        nonlocal failed
        began = time.perf_counter()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name())
        except OSError:
            failed += 1
            return
        took.append(time.perf_counter() - began)
        writer.transport.abort()

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            group.create_task(connect())
    return took, failed


@contextmanager
def started(folder: Path, names: int) -> Iterator[tuple[dict[str, int], list[int]]]:
    """The edge and the api; yields the ports by their titles, and the processes."""
    from tests.commands.conftest import CADDY
    from tests.free_ports import free_port

    ports = {name: free_port() for name in ("port", "domains_https_port", "domains_keys_port")}
    static = free_port()
    use_own_server()
    os.environ.update(
        {
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "PLATFORM_STATE": str(folder),
            "PLATFORM_SECRET_KEY": "a-key-that-only-this-benchmark-uses-0123",
            "PLATFORM_VM_BACKEND": "fake",
            "PLATFORM_LOG_LEVEL": "WARNING",
            **{f"PLATFORM_{name.upper()}": str(value) for name, value in ports.items()},
        }
    )
    (folder / "run").mkdir()
    certificate = make_rows(names)
    (folder / "static.pem").write_text(certificate)
    caddyfile = folder / "run" / "Caddyfile"
    caddyfile.write_text(configuration(folder, static))
    api = [sys.executable, "-m", "config.serve_wsgi", "--uds", str(folder / "run/api.sock"), "--workers", "2"]
    commands = [
        [*api, "--threads", "160"],
        [CADDY, "run", "--config", str(caddyfile), "--adapter", "caddyfile"],
    ]
    given = {**os.environ, "PLATFORM_ROLE": "api", "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    given |= {"GOGC": "400", "GOMAXPROCS": str(max(1, (os.cpu_count() or 2) // 2))}
    log = (folder / "log").open("wb")
    running = [subprocess.Popen(command, env=given, cwd=ROOT, stdout=log, stderr=log) for command in commands]
    try:
        wait_for(ports["domains_https_port"])
        titles = {"from the database": ports["domains_https_port"], "static": static}
        yield titles, [process.pid for process in running]
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def configuration(folder: Path, static: int) -> str:
    from django.conf import settings

    from edge.caddy import caddyfile

    made = caddyfile(settings.ENV, folder / "run")
    path = folder / "static.pem"
    return f'{made}\nhttps://static.example.org:{static} {{\n\ttls {path} {path}\n\trespond "static"\n}}\n'


def make_rows(names: int) -> str:
    """Certificates for `names` names; returns one more, for the static site."""
    import django

    django.setup()
    from certificates.models import Certificate
    from tests.certificates.rows import self_signed

    Certificate.objects.bulk_create(_row(f"n{number}.example.org", Certificate, self_signed) for number in range(names))
    chain, key, *_ = self_signed("static.example.org")
    return chain + key


def _row(name: str, model: Any, self_signed: Any) -> Any:
    chain, key, begin, end = self_signed(name)
    values = {"not_before": begin, "expires_at": end, "next_attempt_at": end, "due_at": end}
    return model(name=name, chain=chain, key=key, status="active", announced=True, **values)


def wait_for(port: int) -> None:
    context = ssl._create_unverified_context()
    until = time.monotonic() + 60
    while True:
        try:
            asyncio.run(_one(port, context))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return


async def _one(port: int, context: ssl.SSLContext) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="n0.example.org")
    writer.transport.abort()


if __name__ == "__main__":
    main()
