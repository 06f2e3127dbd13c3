"""Tasks of a runtime beside plain asyncssh to the same guest, in turns: `/exec` of `true`, the first byte of
`/exec/stream`, and the rate of a large output through it.

    STATE=./var .venv/bin/python -m benchmarks.runtime [--count 200] [--megabytes 64] [--turns 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncssh
import httpx

from benchmarks.common import Instance, percentile
from benchmarks.sandboxes import Sandbox

WORDS = "true"
LARGE = "head -c {size} /dev/zero | tr '\\0' x"


@dataclass(frozen=True)
class Runtime:
    """The inside of a running workspace, and its guest for plain SSH."""

    id: str
    url: str
    headers: dict[str, str]
    guest: Sandbox


@contextmanager
def running_runtime(instance: Instance) -> Iterator[Runtime]:
    """A workspace with its runtime on; deleted at the end."""
    with instance.client() as client:
        made = client.post("/workspace", json={"image": instance.image, "config": {"memory_mb": 512}})
        made.raise_for_status()
        workspace_id = made.json()["workspace"]["id"]
        path = f"/workspace/{workspace_id}"
        try:
            access = client.post(f"{path}/runtime-api-access/enable").raise_for_status().json()
            headers = {"Authorization": f"Bearer {access['token']}"}
            shown = client.post(f"{path}/exec", json={"cmd": "ip -4 -o addr show scope global"}).json()["stdout"]
            address = re.search(r"inet ([\d.]+)/", shown)
            if address is None:
                raise SystemExit(f"the guest shows no address: {shown}")
            yield Runtime(workspace_id, access["url"], headers, Sandbox("", {}, address[1]))
        finally:
            client.delete(path).raise_for_status()


async def timed(work: Callable[[], Awaitable[float | None]]) -> float:
    """Milliseconds until `work` has ended, or until the time that it returns."""
    begun = time.perf_counter()
    ended = await work()
    return ((ended or time.perf_counter()) - begun) * 1000


class Ways:
    """The same work by the runtime and by SSH."""

    def __init__(self, client: httpx.AsyncClient, runtime: Runtime, ssh: asyncssh.SSHClientConnection) -> None:
        self._client, self._runtime, self._ssh = client, runtime, ssh

    async def run_task(self) -> None:
        answer = await self._client.post(
            f"{self._runtime.url}/exec", json={"cmd": [WORDS]}, headers=self._runtime.headers
        )
        answer.raise_for_status()
        if answer.json()["exit_code"] != 0:
            raise SystemExit(answer.text)

    async def run_command(self) -> None:
        await self._ssh.run(WORDS, check=True)

    async def first_of_task(self) -> float:
        """Return when the first output came."""
        first = 0.0
        async with self._stream(["echo", "x"]) as response:
            async for line in response.aiter_lines():
                if line == "event: stdout":
                    first = time.perf_counter()
        return first

    async def first_of_command(self) -> float:
        async with self._ssh.create_process("echo x", encoding=None) as process:
            await process.stdout.read(1)
            return time.perf_counter()

    async def large_by_task(self, size: int) -> None:
        found = 0
        async with self._stream(LARGE.format(size=size)) as response:
            async for line in response.aiter_lines():
                if line.startswith('data: {"data":'):
                    found += len(json.loads(line[6:])["data"]) * 3 // 4
        if found < size:
            raise SystemExit(f"{found} of {size} bytes came")

    async def large_by_command(self, size: int) -> None:
        found = 0
        async with self._ssh.create_process(LARGE.format(size=size), encoding=None) as process:
            while block := await process.stdout.read(1 << 18):
                found += len(block)
        if found != size:
            raise SystemExit(f"{found} of {size} bytes came")

    def _stream(self, command: Any) -> Any:
        body = {"cmd": command, "ttl_seconds": 0, "keep_logs": False}
        return self._client.stream("POST", f"{self._runtime.url}/exec/stream", json=body, headers=self._runtime.headers)


async def measure(runtime: Runtime, options: argparse.Namespace) -> None:
    async with httpx.AsyncClient(timeout=300, trust_env=False) as client, await runtime.guest.ssh() as ssh:
        ways = Ways(client, runtime, ssh)
        pairs = {
            "/exec of true": (ways.run_task, ways.run_command, "p50 at most 1.6"),
            "first byte": (ways.first_of_task, ways.first_of_command, "p50 at most 1.5, p99 at most 2"),
        }
        for title, (ours, theirs, bar) in pairs.items():
            await show_ratio(title, ours, theirs, options.count, bar)
        size = options.megabytes << 20
        rates: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(options.turns):
            rates["ours"].append(await timed(lambda: ways.large_by_task(size)))  # type: ignore[arg-type,return-value]
            rates["theirs"].append(await timed(lambda: ways.large_by_command(size)))  # type: ignore[arg-type,return-value]
        ours, theirs = (options.megabytes / (percentile(rates[name], 0.5) / 1000) for name in ("ours", "theirs"))
        print(f"{options.megabytes} MiB: {ours:.1f} MiB/s, ssh {theirs:.1f}: ratio {ours / theirs:.2f} (at least 0.5)")


async def show_ratio(title: str, ours: Any, theirs: Any, count: int, bar: str) -> None:
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(count + 5):
        times = await timed(ours), await timed(theirs)
        if number >= 5:  # connections, caches
            found["ours"].append(times[0])
            found["theirs"].append(times[1])
    for share in (0.5, 0.99):
        one, other = percentile(found["ours"], share), percentile(found["theirs"], share)
        print(
            f"{title} p{share * 100:.0f}: {one:.1f} ms, ssh {other:.1f} ms: ratio {one / other:.2f} ({bar})", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with running_runtime(Instance.load()) as runtime:
        asyncio.run(measure(runtime, options))


if __name__ == "__main__":
    main()
