"""The edge as configured and nginx, over the same folder of pages; for `benchmarks.pages`."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.page_sites import DOMAIN
from edge.caddy import caddyfile
from supervise.instance import Instance
from supervise.processes import processes
from tests.free_ports import free_port

_NGINX = """
load_module /usr/lib/nginx/modules/ngx_http_brotli_static_module.so;
worker_processes {cores};
daemon off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 100000000;
    server_tokens off;
    server_names_hash_bucket_size 128;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        server_name ~^(?<slug>[a-z0-9]+(?:-[a-z0-9]+)*)\\.{domain}$;
        root {slugs}/$slug/current/public;
        index index.html;
        gzip_static on;
        brotli_static on;
        add_header Cache-Control "public, max-age=0, must-revalidate";
        add_header X-Content-Type-Options nosniff;
        add_header Referrer-Policy strict-origin-when-cross-origin;
        add_header Last-Modified "";
        add_header Vary Accept-Encoding;
    }}
}}
"""


@dataclass(frozen=True)
class Server:
    """A web server on this host, by its port and main process."""

    name: str
    port: int
    pid: int

    def pids(self) -> list[int]:
        """Of the main process and its children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        """CPU time of all its processes until now."""
        ticks = 0
        for pid in self.pids():
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Resident memory of the main process that no file is behind."""
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024

    def get(self, slug: str, path: str, **headers: str) -> httpx.Response:
        named = {"Host": f"{slug}.{DOMAIN}", **{key.replace("_", "-"): value for key, value in headers.items()}}
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=named, trust_env=False)

    def load(self, slug: str, path: str, seconds: int, connections: int, encoding: str) -> tuple[float, float]:
        """Requests a second, and microseconds of CPU time for each. Ends the benchmark at an error."""
        headers = ["-H", f"Host: {slug}.{DOMAIN}", "-H", f"Accept-Encoding: {encoding}"]
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *headers, f"http://127.0.0.1:{self.port}{path}"]
        before = self.cpu_seconds()
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        used = self.cpu_seconds() - before
        rate, count = re.search(r"Requests/sec:\s+([\d.]+)", out), re.search(r"(\d+) requests in", out)
        if "Non-2xx" in out or "Socket errors" in out or rate is None or count is None:
            raise SystemExit(f"{self.name} answered errors:\n{out}")
        return float(rate[1]), used / int(count[1]) * 1e6


@contextmanager
def edge(instance: Instance) -> Iterator[Server]:
    """Caddy with the configuration and environment of an instance, which is not started otherwise."""
    settings = instance.settings({})
    (instance.run_dir / "Caddyfile").write_text(caddyfile(settings, instance.run_dir))
    process = next(found for found in processes(instance, settings) if found.name == "edge")
    environment = {"PATH": os.environ["PATH"], **process.environment}
    with _running("edge", list(process.command), instance.port, environment) as server:
        yield server


@contextmanager
def nginx(folder: Path, slugs: Path, cores: int) -> Iterator[Server]:
    """Debian's nginx with as many worker processes as the edge has cores."""
    port = free_port()
    path = folder / "nginx.conf"
    path.write_text(
        _NGINX.format(cores=cores, folder=folder, port=port, domain=re.escape(DOMAIN), slugs=slugs)
        # Its workers read what belongs to the operator's user.
        + ("" if os.geteuid() else "user root;\n")
    )
    with _running("nginx", ["nginx", "-c", str(path), "-p", str(folder)], port, dict(os.environ)) as server:
        yield server


@contextmanager
def _running(name: str, command: list[str], port: int, environment: dict[str, str]) -> Iterator[Server]:
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = Server(name, port, process.pid)
        _wait(lambda: server.get("none", "/").status_code > 0, name)
        yield server
    finally:
        process.terminate()
        process.wait()


def _wait(answers: Callable[[], bool], name: str) -> None:
    for _ in range(200):
        try:
            if answers():
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise SystemExit(f"{name} does not answer")
