"""A port of a machine through the edge beside the same port directly from the host: requests a second, in turns.

    STATE=./var .venv/bin/python -m benchmarks.edge [--rounds 3] [--seconds 8] [--connections 16]

The program in the machine is `tests/vm/web.c`, which sends a few bytes on keep-alive connections; the slower a
program, the less the edge weighs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.common import Instance, show
from tests.vm.client import until
from tests.vm.images import build_web

PORT = 8080
BAR = "at least 0.6"


def rate(url: str, seconds: int, connections: int, host: str = "") -> float:
    """Requests a second by wrk; ends the benchmark if a response is an error."""
    named = ("-H", f"Host: {host}") if host else ()
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *named, url]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(f"{url} answered errors:\n{out}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None:
        raise SystemExit(f"wrk said: {out}")
    return float(found[1])


def start_program(client: httpx.Client, path: str) -> str:
    """Put the web server into the machine, start it, publish its port. Returns the public name."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "web"
        build_web(program)
        headers = {"Content-Type": "application/octet-stream"}
        sent = client.post(
            f"{path}/overlay/files", params={"path": "/web"}, content=program.read_bytes(), headers=headers
        )
        sent.raise_for_status()
    command = f"chmod 755 /web && (setsid /web {PORT} >/dev/null 2>&1 </dev/null &)"
    client.post(f"{path}/exec", json={"cmd": command}).raise_for_status()
    published = client.post(f"{path}/public-access", json={"port": PORT})
    published.raise_for_status()
    domain: str = published.json()["public_port"]["domain"]
    return domain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    instance = Instance.load()
    port = urlsplit(instance.base_url).port or 80
    edges, directs = [], []
    with instance.workspace(256) as (client, workspace_id):
        path = f"/workspace/{workspace_id}"
        domain = start_program(client, path)
        direct = f"http://{client.get(path).json()['workspace']['ip']}:{PORT}/ok"
        edge = f"http://127.0.0.1:{port}/ok"
        until(lambda: httpx.get(edge, headers={"Host": domain}).status_code == 200, 30, "the program answers")
        for number in range(options.rounds):
            directs.append(rate(direct, options.seconds, options.connections))
            edges.append(rate(edge, options.seconds, options.connections, domain))
            print(f"  {number + 1:>3}: edge {edges[-1]:.0f} req/s, direct {directs[-1]:.0f} req/s", flush=True)
    show("through the edge", edges, directs, unit="req/s", bar=f"of the port directly; {BAR}")


if __name__ == "__main__":
    main()
