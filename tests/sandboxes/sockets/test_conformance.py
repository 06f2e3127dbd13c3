"""The WebSocket protocol as streams serves it (wsproto under uvicorn), by the cases of Autobahn's test suite."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from kosoku import run_fuzzingclient

# Compression is off: those cases end with the handshake.
COMPRESSION = ("12.*", "13.*")


@pytest.fixture
def echo_address() -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        command = [sys.executable, "-m", "tests.sandboxes.sockets.echo_server", str(listener.fileno())]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
        try:
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait(120)


def test_no_conformance_case_fails(echo_address: str) -> None:
    async def verdicts() -> list[str]:
        found = await run_fuzzingclient(echo_address, exclude_cases=COMPRESSION, concurrency=4)  # raises what failed
        return [case.behavior.value for case in found]

    found = asyncio.run(verdicts())
    assert len(found) > 290
    assert set(found) <= {"OK", "NON-STRICT", "INFORMATIONAL"}
