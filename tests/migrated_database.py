"""A packed data folder of a PostgreSQL whose database has all migrations, made once for a state of the code: servers
of the tests begin with a copy, as initdb and migrating an empty database take some seconds of a processor.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg

from supervise.instance import ROOT
from tests.cache import CACHE, remove_unused
from tests.postgres import (
    DATABASE,
    SUPERUSER,
    USER,
    execute_as_superuser,
    give_to_owner,
    initialize_data,
    running_server,
    url_of,
)

DATABASES = CACHE / "databases"
KEEP_DAYS = 7  # of those of earlier states, 10 MiB each
PACKED = ("--use-compress-program", "lz4")


def put_migrated_data(target: Path) -> None:
    """Put a copy at `target` unless there is something. Processes that want one at once wait for the first.

    Raises CalledProcessError where it cannot be made.
    """
    if target.exists():
        return
    target.parent.mkdir(mode=0o711, exist_ok=True)
    DATABASES.mkdir(parents=True, exist_ok=True)
    kept = DATABASES / f"{_state_of_code()}.tar.lz4"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _make(kept)
        os.utime(kept)
        os.utime(kept.with_suffix(".lock"))
    remove_unused(DATABASES, KEEP_DAYS)
    target.mkdir(mode=0o700)
    subprocess.run(["tar", "--extract", *PACKED, "--file", str(kept), "--directory", str(target)], check=True)
    give_to_owner(target)


def _make(kept: Path) -> None:
    # Not beside it, as the user who runs servers need not reach this user's cache.
    with tempfile.TemporaryDirectory(prefix="mvm-migrating-") as folder:
        sockets, data = Path(folder), Path(folder) / "data"
        give_to_owner(sockets)
        initialize_data(data)
        with running_server(data, sockets):
            execute_as_superuser(sockets, f"CREATE ROLE {USER} LOGIN", f"CREATE DATABASE {DATABASE} OWNER {USER}")
            _install_host_roles(sockets)
            _migrate(url_of(sockets), sockets / "state")
            # Of all copies: the power does not fail, and processes that are killed lose nothing that they have written.
            execute_as_superuser(sockets, *(f"ALTER SYSTEM SET {name} = off" for name in ("fsync", "full_page_writes")))
        beside = kept.with_name(f"{kept.name}.new")
        command = ["tar", "--create", *PACKED, "--file", str(beside), "--directory", str(data), "."]
        subprocess.run(command, check=True)
        beside.rename(kept)


def _install_host_roles(sockets: Path) -> None:
    with closing(psycopg.connect(url_of(sockets, DATABASE, SUPERUSER), autocommit=True)) as server:
        server.execute((ROOT / "platform/common/host_access/roles.sql").read_text().encode())


def _migrate(url: str, state: Path) -> None:
    own = {"PLATFORM_STATE": str(state), "PLATFORM_DATABASE_URL": url, "PLATFORM_SECRET_KEY": "x" * 50}
    command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--no-input", "--verbosity", "0"]
    subprocess.run(command, env={**os.environ, **own}, cwd=ROOT, check=True)


def _state_of_code() -> str:
    """A hash of the packages and of all code but that of the tests: migrations use some of both."""
    digest = hashlib.sha256()
    for path in (*sorted(_code()), ROOT / "requirements.lock"):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _code() -> Iterator[Path]:
    for settings in ROOT.glob("*/apps.py"):
        yield from settings.parent.rglob("*.py")
    yield from (ROOT / "platform").rglob("*.py")
    yield from (ROOT / "platform").rglob("*.sql")
