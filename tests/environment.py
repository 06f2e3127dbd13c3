"""A pytest plugin (`-p tests.environment`, in pyproject.toml) that is loaded before Django's settings are.

It gives the tests a state folder, a Redis and a PostgreSQL of their own, and removes them at the end. Tests that boot
machines start whole instances with state folders of their own (tests/vm/instances.py).
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from clients.python.generator.synchronous import write_synchronous_client
from tests.database_server import choose_server

# Short: socket paths have 107 characters.
STATE = Path(tempfile.mkdtemp(prefix="mvmt-", dir="/tmp"))
SOCKET = STATE / "redis.sock"

os.environ.update(
    {
        "PLATFORM_STATE": str(STATE),
        "PLATFORM_HOST_NAME": "local",
        "PLATFORM_VM_BACKEND": "fake",
        "PLATFORM_SECRET_KEY": "a-key-that-only-the-tests-use-0123456789",
        "PLATFORM_REDIS_URL": f"unix://{SOCKET}",
        "PLATFORM_ALLOWED_HOSTS": "testserver,localhost",
        "PLATFORM_DEFAULT_IMAGE": "localhost/workspace:latest",
        "PLATFORM_ORPHAN_GRACE_SECONDS": "0",
        # No file of a quarter of it for each host that a test starts.
        "PLATFORM_DISK_RESERVE_MB": "0",
        # Only tests of the warm pool have one (tests/workspaces/pool).
        "PLATFORM_POOL_MEMORY_MB": "0",
        "PLATFORM_RETRY_SECONDS": "0",
        "PLATFORM_LOG_LEVEL": "WARNING",
        # All tests call from one address, and many with wrong secrets.
        "PLATFORM_SECRET_FAILURES": "1000000",
    }
)
choose_server()
# As the asynchronous client is now.
write_synchronous_client()
_redis: list[subprocess.Popen[bytes]] = []
# Half of the time that collecting took was spent on looking at objects that all stay.
gc.disable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """The collector of garbage begins after it, and never looks at what it has made."""
    try:
        return (yield)
    finally:
        gc.freeze()
        # A test makes more objects than Python's 700 before any of them can be garbage.
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


def start_redis() -> subprocess.Popen[bytes]:
    """A private Redis on SOCKET, without a TCP port and without a file."""
    users = STATE / "redis-users.acl"
    users.touch()
    # It ends with this process, also where that is killed: a process of pytest-xdist may be, before it has cleaned up.
    process = subprocess.Popen(
        [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            str(SOCKET),
            "--save",
            "",
            "--dir",
            str(STATE),
            "--aclfile",
            str(users),
        ],
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 120
    while not SOCKET.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return process


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    _redis.append(start_redis())


def pytest_unconfigure(config: pytest.Config) -> None:
    for process in _redis:
        process.kill()
        process.wait()
    shutil.rmtree(STATE, ignore_errors=True)
