"""Files by the runtime. Beside the sandbox level's same code on the same machine: a read of 1 KiB and a list of 10,000
entries. Beside `tar` over plain SSH to the same guest: a tree of 256 MiB each way. In turns.

    STATE=./var .venv/bin/python -m benchmarks.runtime_files [--count 100] [--megabytes 256] [--turns 3]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import tarfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncssh
import httpx

from benchmarks.common import Instance, show
from benchmarks.sandboxes import Sandbox, command_run, running_sandbox

ENTRIES = 10_000
FILE_MIB = 8
MAKE = f"""mkdir -p /bench/many && cd /bench/many && i=0
while [ $i -lt {ENTRIES} ]; do : >file-$i; i=$((i + 1)); done; head -c 1024 /dev/zero | tr '\\0' x >/bench/small"""
LEVEL_BAR = "of the sandbox level's time; at most 1.2"
TAR_BAR = "of tar's rate over SSH; at least 0.8"
Work = Callable[[], Awaitable[object]]


class Ways:
    """The same work by the runtime, by the sandbox level and by SSH."""

    def __init__(self, client: httpx.AsyncClient, access: dict[str, Any], sandbox: Sandbox) -> None:
        self._client, self._sandbox = client, sandbox
        self._url = access["url"]
        self._headers = {"Authorization": f"Bearer {access['token']}"}

    async def read(self) -> None:
        answer = await self._client.get(f"{self._url}/files/read?path=/bench/small", headers=self._headers)
        if len(answer.raise_for_status().json()["content"]) != 1024:
            raise SystemExit(answer.text)

    async def read_by_level(self) -> None:
        await self._ask_level("files/get", {"filePath": "/bench/small"})

    async def list(self) -> None:
        answer = await self._client.get(f"{self._url}/files?path=/bench/many&light=true", headers=self._headers)
        if answer.raise_for_status().text.count("file-") < ENTRIES:
            raise SystemExit("entries are missing")

    async def list_by_level(self) -> None:
        await self._ask_level("files/list", {"dirPath": "/bench/many"})

    async def _ask_level(self, route: str, body: dict[str, Any]) -> None:
        answer = await self._client.post(f"{self._sandbox.url}/{route}", json=body, headers=self._sandbox.headers)
        answer.raise_for_status()

    async def upload(self, archive: bytes) -> None:
        answer = await self._client.post(
            f"{self._url}/files/transfer/upload?dest=/bench/ours", content=archive, headers=self._headers
        )
        answer.raise_for_status()

    async def download(self) -> None:
        body = {"paths": ["/bench/theirs"]}
        request = self._client.stream("POST", f"{self._url}/files/transfer/download", json=body, headers=self._headers)
        async with request as answer:
            await swallow(answer.raise_for_status().aiter_raw())


async def swallow(pieces: Any) -> None:
    found = 0
    async for piece in pieces:
        found += len(piece)
    if found < 1 << 20:
        raise SystemExit(f"{found} bytes came")


async def upload_by_tar(ssh: asyncssh.SSHClientConnection, archive: bytes) -> None:
    """As whoever has an archive does it; on the disk at the end, as ours is."""
    words = "mkdir -p /bench/theirs && tar -xzf - -C /bench/theirs && sync"
    await ssh.run(words, input=archive, encoding=None, check=True)


async def download_by_tar(ssh: asyncssh.SSHClientConnection) -> None:
    async with ssh.create_process("tar -cf - -C / bench/theirs | gzip -1", encoding=None) as process:
        pieces = iter(lambda: process.stdout.read(1 << 18), None)

        async def read() -> Any:
            for piece in pieces:
                if not (data := await piece):
                    return
                yield data

        await swallow(read())


def archive_made(megabytes: int) -> bytes:
    """A tree of files that do not become smaller."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as tar:
        for number in range(megabytes // FILE_MIB):
            entry = tarfile.TarInfo(f"folder-{number % 4}/file-{number}")
            entry.size = FILE_MIB << 20
            tar.addfile(entry, io.BytesIO(os.urandom(entry.size)))
    return made.getvalue()


async def compare(title: str, pair: tuple[Work, Work], count: int, bar: str, *, megabytes: int = 0) -> None:
    """Show the ratio of times, or of rates."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(count + 1):
        for values, work in zip(found, pair, strict=True):
            begun = time.perf_counter()
            await work()
            seconds = time.perf_counter() - begun
            if number:  # connections, caches
                values.append(megabytes / seconds if megabytes else seconds * 1000)
    show(title, *found, unit="MiB/s" if megabytes else "ms", bar=bar)


async def measure(ways: Ways, sandbox: Sandbox, options: argparse.Namespace) -> None:
    await compare("read of 1 KiB", (ways.read, ways.read_by_level), options.count, LEVEL_BAR)
    await compare(f"list of {ENTRIES}", (ways.list, ways.list_by_level), max(5, options.count // 10), LEVEL_BAR)
    archive = archive_made(options.megabytes)
    async with await sandbox.ssh() as ssh:
        both = (lambda: ways.upload(archive)), (lambda: upload_by_tar(ssh, archive))
        await compare("upload", both, options.turns, TAR_BAR, megabytes=options.megabytes)
        both = ways.download, (lambda: download_by_tar(ssh))
        await compare("download", both, options.turns, TAR_BAR, megabytes=options.megabytes)


async def run(sandbox: Sandbox, access: dict[str, Any], options: argparse.Namespace) -> None:
    async with httpx.AsyncClient(timeout=600, trust_env=False) as client:
        await measure(Ways(client, access, sandbox), sandbox, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    instance = Instance.load()
    with (
        running_sandbox(instance, 1024, disk_size_mb=3 * options.megabytes + 512) as sandbox,
        instance.client() as client,
    ):
        made = client.post(f"/workspace/{sandbox.workspace_id}/runtime-api-access/enable").raise_for_status()
        command_run(sandbox.url, sandbox.headers, MAKE)
        asyncio.run(run(sandbox, made.json(), options))


if __name__ == "__main__":
    main()
