"""`GET /workspace/:id` beside an empty authenticated view of the same server, and the list of 20 from 100,000 rows
beside the list from 100; workspace objects by `ResponseSerializer` beside DRF's own.

Starts a server (granian as in production) and a PostgreSQL of its own.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.api [--seconds 5] [--rows 100000]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.databases import use_own_server

PORT = 8931
URL = f"http://127.0.0.1:{PORT}"
ROOT = Path(__file__).resolve().parent.parent


def environment(state: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORM_")}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "PLATFORM_STATE": str(state),
        "PLATFORM_DATABASE_URL": os.environ["PLATFORM_DATABASE_URL"],
        "PLATFORM_SECRET_KEY": "a-key-for-the-benchmark-only-0123456789",
        "PLATFORM_VM_BACKEND": "fake",
        "PLATFORM_LOG_LEVEL": "ERROR",
        "PLATFORM_ROLE": "api",
    }


@contextmanager
def server(env: dict[str, str]) -> Any:
    command = [
        str(Path(sys.executable).parent / "granian"), "--interface", "wsgi", "--workers", "2",
        "--blocking-threads", "32", "--port", str(PORT), "--log-level", "error", "config.wsgi:application",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=env, cwd=ROOT)
    try:
        for _ in range(200):
            try:
                httpx.get(f"{URL}/healthz", timeout=1)
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(15)


def load(path: str, headers: dict[str, str], seconds: int) -> dict[str, float]:
    """Requests a second, median and p99 in milliseconds, by wrk with 8 connections."""
    sent = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    command = ["wrk", "-t1", "-c8", f"-d{seconds}s", "--latency", *sent, f"{URL}{path}"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in out:
        raise SystemExit(f"{path} answered errors:\n{out}")
    found = {"rate": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])}  # type: ignore[index]
    for share in ("50", "99"):
        value, unit = re.search(rf"{share}%\s+([\d.]+)(us|ms|s)\b", out).groups()  # type: ignore[union-attr]
        found[f"p{share}"] = float(value) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    return found


def interleaved(one: str, two: str, first: dict[str, str], second: dict[str, str], seconds: int) -> None:
    """Three rounds of each, in turns; the best round of each is compared."""
    rounds: dict[str, list[dict[str, float]]] = {one: [], two: []}
    for _ in range(3):
        rounds[one].append(load(one, first, seconds))
        rounds[two].append(load(two, second, seconds))
    best = {path: max(found, key=lambda r: r["rate"]) for path, found in rounds.items()}
    for path, found in best.items():
        print(f"  {path:<44} {found['rate']:8.0f} req/s   p50 {found['p50']:6.2f} ms   p99 {found['p99']:6.2f} ms")
    ratio = {key: best[one][key] / best[two][key] for key in ("rate", "p50", "p99")}
    print(f"  ratio: rate {ratio['rate']:.2f}, p50 {ratio['p50']:.2f}, p99 {ratio['p99']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    use_own_server()
    state = Path(tempfile.mkdtemp(prefix="mvmb-"))
    env = environment(state)
    try:
        rows = [sys.executable, "-m", "benchmarks.rows", str(options.rows)]
        made = json.loads(subprocess.run(rows, env=env, cwd=ROOT, check=True, capture_output=True).stdout)
        print("workspace objects by ResponseSerializer beside DRF's Serializer (bar: ratio at least 3)", flush=True)
        subprocess.run([sys.executable, "-m", "benchmarks.representation"], env=env, cwd=ROOT, check=True)
        with server(env):
            few, many = made["few"]["headers"], made["many"]["headers"]
            print(f"GET one of {options.rows} workspaces beside an empty authenticated view (bar: rate at least 0.5)")
            interleaved(f"/workspace/{made['many']['id']}", "/empty", many, many, options.seconds)
            print(f"list of 20 from {options.rows} rows beside the list from 100 (bar: times at most 1.3)")
            interleaved("/workspace?page=1", "/workspace", many, few, options.seconds)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
