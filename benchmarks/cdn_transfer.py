"""Files of the CDN through the real processes: uploads beside a bare ASGI application that writes a file, behind such
an edge; downloads beside nginx with the same files and cores.

    .venv/bin/python -m benchmarks.cdn_transfer [--rounds 3] [--mebibytes 1024] [--seconds 4] [--connections 16]

Needs no instance: it starts one with the fake driver, and removes it. Sides take turns. While an upload runs, anonymous
memory of every process of the instance is sampled.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.common import show
from edge.caddy import caddyfile
from supervise.instance import load_instance
from supervise.processes import processes
from tests.free_ports import free_port
from tests.vm.client import Api, until
from tests.vm.instances import TestInstance, new_instance

GROWTH_BAR_MIB = 64
SMALL, LARGE = 20_000, 100 << 20
SAMPLE_SECONDS = 0.05
# The application beside: what came is written, and nothing else is done.
BARE = """
import os
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    with open(os.environ["TARGET"], "wb", buffering=0) as file:
        more = True
        while more:
            message = await receive()
            file.write(message.get("body", b""))
            more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
"""
NGINX = """
worker_processes {cores};
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
{user}
events {{ worker_connections 1024; }}
http {{
    types {{ image/png png; }}
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {folder}/files;
        add_header Cache-Control "public, max-age=31536000, immutable";
        add_header Access-Control-Allow-Origin *;
        add_header X-Content-Type-Options nosniff;
        add_header Last-Modified "";
    }}
}}
"""


def anonymous_mib(pid: int) -> float:
    """Memory of a process that no file is behind; 0 where it has ended."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


class Growth:
    """How much each process of an instance grew beyond what it had, at most."""

    def __init__(self, instance: TestInstance) -> None:
        self._instance = instance
        self.most: dict[str, float] = {}

    @contextmanager
    def sampled(self) -> Iterator[None]:
        tree = self._instance.process_tree()
        before = {pid: anonymous_mib(pid) for pid in tree}
        ended = threading.Event()

        def sample() -> None:
            while not ended.wait(SAMPLE_SECONDS):
                for pid, role in tree.items():
                    self.most[role] = max(self.most.get(role, 0.0), anonymous_mib(pid) - before[pid])

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def sent(path: Path, url: str) -> float:
    """MiB a second of one upload by curl."""
    command = ["curl", "-sS", "-T", str(path), "-o", "/dev/null", "-w", "%{http_code} %{time_total}", url]
    status, seconds = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if status not in ("201", "202"):
        raise SystemExit(f"{url}: {status}")
    return path.stat().st_size / float(seconds) / (1 << 20)


def permit(client: Api, size: int) -> dict[str, str]:
    found: dict[str, str] = client.call(
        "POST", "/cdn/token", 201, json={"filename": "f", "size": size, "contentType": ""}
    )
    return found


@contextmanager
def bare(folder: Path) -> Iterator[str]:
    """The bare application behind an edge as configured; its address."""
    instance = load_instance(folder / "bare", free_port())
    settings = instance.settings({})
    (instance.run_dir / "Caddyfile").write_text(caddyfile(settings, instance.run_dir))
    (folder / "bare_app.py").write_text(BARE)
    edge = next(found for found in processes(instance, settings) if found.name == "edge")
    server = [
        sys.executable,
        "-m",
        "config.serve_asgi",
        "bare_app:application",
        "--uds",
        f"{instance.run_dir}/streams.sock",
    ]
    places = f"{folder}:{os.environ['PYTHONPATH']}" if "PYTHONPATH" in os.environ else f"{folder}:.:platform"
    environment = {**os.environ, "PYTHONPATH": places, "TARGET": str(folder / "target"), "PLATFORM_STATE": str(folder)}
    with ExitStack() as stack:
        for command, given in (
            (server, environment),
            (list(edge.command), {"PATH": os.environ["PATH"], **edge.environment}),
        ):
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command], env=given, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        until((instance.run_dir / "streams.sock").exists, 30, "the bare application listens")
        until(lambda: answers(settings.base_url), 30, "its edge answers")
        yield f"{settings.base_url}/cdn/uploads/x"


def answers(url: str) -> bool:
    try:
        return httpx.get(url + "/static/x", trust_env=False).status_code > 0
    except httpx.TransportError:
        return False


def uploads(served: TestInstance, folder: Path, options: argparse.Namespace) -> None:
    """Rates in turns, and what the processes grew by."""
    client, path = served.api(), folder / "sent"
    with path.open("wb") as file:
        for _ in range(options.mebibytes):
            file.write(os.urandom(1 << 20))
    rates: list[list[float]] = [[], []]
    growth = Growth(served)
    with bare(folder) as beside:
        for number in range(options.rounds + 1):
            made = permit(client, path.stat().st_size)
            with growth.sampled():
                ours = sent(path, made["uploadUrl"])
            wait_until_settled(client, made["fileId"])
            client.call("DELETE", f"/cdn/files/{made['fileId']}")
            client.http.request("DELETE", "/cdn/trash", json={})
            theirs = sent(path, beside)
            (folder / "target").unlink()
            os.sync()
            print(
                f"  {number}: ours {ours:.0f} MiB/s, bare {theirs:.0f} MiB/s{'' if number else ', not counted'}",
                flush=True,
            )
            if number:
                rates[0].append(ours)
                rates[1].append(theirs)
    show(f"upload of {options.mebibytes} MiB", *rates, unit="MiB/s", bar="of the bare application's rate; at least 0.6")
    grown = ", ".join(f"{role} {most:.1f}" for role, most in sorted(growth.most.items()) if most >= 1)
    print(f"  growth of each process in MiB, at most: {grown or 'below 1'} (below {GROWTH_BAR_MIB})")


def wait_until_settled(client: Api, file_id: str) -> None:
    until(lambda: is_settled(client, file_id), 300, "the file is looked at")


def is_settled(client: Api, file_id: str) -> bool:
    return client.call("GET", f"/cdn/files/{file_id}")["file"]["status"] not in ("uploading", "processing")


@contextmanager
def nginx(folder: Path, cores: int) -> Iterator[int]:
    """Debian's nginx over the folder `files`; its port."""
    port, path = free_port(), folder / "nginx.conf"
    user = "" if os.geteuid() else "user root;"
    path.write_text(NGINX.format(cores=cores, folder=folder, port=port, user=user))
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "nginx", "-c", str(path), "-p", str(folder)])
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}"), 20, "nginx answers")
        yield port
    finally:
        process.terminate()
        process.wait()


def loaded(port: int, host: str, path: str, connections: int, seconds: int) -> float:
    """Requests a second. Ends the benchmark at an error."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-H", f"Host: {host}"]
    out = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True
    ).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if "Non-2xx" in out or "Socket errors" in out or rate is None:
        raise SystemExit(out)
    return float(rate[1])


def downloads(served: TestInstance, folder: Path, options: argparse.Namespace) -> None:
    """Rates of both sizes in turns."""
    client, files = served.api(), folder / "files"
    files.mkdir()
    host = urlsplit(served.settings.cdn_url).hostname or ""
    with nginx(folder, max(1, len(os.sched_getaffinity(0)) // 2)) as port:
        for title, size, bar, connections, seconds in (
            ("20 kB", SMALL, 0.5, options.connections, options.seconds),
            ("100 MiB", LARGE, 0.8, 2, 2 * options.seconds),
        ):
            path = files / f"{size}.png"
            path.write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(size - 8))
            made = permit(client, size)
            sent(path, made["uploadUrl"])
            wait_until_settled(client, made["fileId"])
            url = client.call("GET", f"/cdn/files/{made['fileId']}")["file"]["url"]
            place = urlsplit(url).path
            rates: list[list[float]] = [[], []]
            for number in range(options.rounds + 1):
                found = (
                    loaded(served.instance.port, host, place, connections, seconds),
                    loaded(port, "localhost", f"/{path.name}", connections, seconds),
                )
                print(f"  {number}: edge {found[0]:.1f} req/s, nginx {found[1]:.1f} req/s", flush=True)
                if number:
                    rates[0].append(found[0])
                    rates[1].append(found[1])
            show(f"download of {title}", *rates, unit="req/s", bar=f"of nginx's rate; at least {bar}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    settings = {"PLATFORM_VM_BACKEND": "fake", "PLATFORM_CDN_UPLOAD_WAIT_SECONDS": "0"}
    with tempfile.TemporaryDirectory(prefix="mvb-") as name, new_instance(images=False, **settings) as served:
        served.start()
        uploads(served, Path(name), options)
        downloads(served, Path(name), options)


if __name__ == "__main__":
    main()
