"""The PostgreSQL of a run of tests, with a database that has all migrations; the first process that needs it starts it.

Both it and its folder go when the process that owns the run ends, in whatever way: a keeper process waits for that.

    python -m tests.database_server CMD...    # runs a command with PLATFORM_DATABASE_URL set to such a server

DURABLE=1: commits are written to the disk, as where the platform is deployed; for benchmarks.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.migrated_database import put_migrated_data
from tests.postgres import DATABASE, DURABLE, UNSAFE, USER, execute_as_superuser, give_to_owner, running_server, url_of

ROOT = Path(__file__).parent.parent
URL = "PLATFORM_DATABASE_URL"
# The id of the process with which the server ends; not set where the server is somebody else's.
OWNER = "TESTS_DATABASE_OWNER"
# The database that others are copied from, which needs that no connection to it is open.
TEMPLATE = "migrated"
# Each process of a run has a database of its own, of some 20 MiB.
LEAST_MEMORY = 2 << 30
_keepers: list[subprocess.Popen[bytes]] = []


def choose_server() -> None:
    """Name the server in the environment of this process and its children, unless one is named; it is not started."""
    if not os.environ.get(URL):
        folder = _parent() / f"mvm-pg-{secrets.token_hex(4)}"
        os.environ[URL], os.environ[OWNER] = url_of(folder), str(os.getpid())


def _parent() -> Path:
    """Return where the server's folder is made: in memory, which costs a tenth, unless it is to be durable."""
    memory = Path("/dev/shm")
    if os.environ.get("DURABLE") or not memory.is_dir() or shutil.disk_usage(memory).free < LEAST_MEMORY:
        return Path(tempfile.gettempdir())
    return memory


def is_own() -> bool:
    """Return whether the run has its own server, whose databases need not be removed."""
    return OWNER in os.environ


def ensure_server() -> None:
    """Start the run's server unless it runs. Raises RuntimeError with the reason where it does not start."""
    if not is_own():
        return
    folder = Path(os.environ[URL].rpartition("=")[2])
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _start_keeper(folder)


@contextmanager
def new_database() -> Iterator[str]:
    """Yield the URL of an empty database of the run's server, which is there until the end of the block."""
    ensure_server()
    name = f"empty_{secrets.token_hex(4)}"
    with closing(psycopg.connect(os.environ[URL], autocommit=True)) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        yield urlsplit(os.environ[URL])._replace(path=f"/{name}").geturl()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _start_keeper(folder: Path) -> None:
    # Without the mark of a CI run, whose sweep would end the keeper before it has done its work.
    environment = {key: value for key, value in os.environ.items() if key != "PLATFORM_CI_RUN"}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'platform'}"
    command = [sys.executable, "-m", "tests.database_server", "--keep", str(folder), os.environ[OWNER]]
    errors = folder / "errors"
    with errors.open("wb") as file:
        keeper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, cwd=ROOT, env=environment,
            start_new_session=True,
        )  # fmt: skip
    _keepers.append(keeper)
    assert keeper.stdout is not None
    if keeper.stdout.readline() != b"ready\n":
        raise RuntimeError(f"The tests have no PostgreSQL: {errors.read_text() if errors.exists() else keeper.wait()}")
    (folder / "ready").touch()


def keep(folder: Path, owner: int) -> None:
    """Run the server until its owner has ended; then remove its folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        ended = os.pidfd_open(owner)
        give_to_owner(folder)
        data = folder / "data"
        put_migrated_data(data)
        with running_server(data, folder, DURABLE if os.environ.get("DURABLE") else UNSAFE):
            _make_template(folder)
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            select.select([ended], [], [])
    except ProcessLookupError:  # the owner is gone already
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_template(folder: Path) -> None:
    execute_as_superuser(
        folder,
        f"ALTER ROLE {USER} CREATEDB",
        # With which the tests empty all tables (tests/conftest.py).
        f"GRANT SET ON PARAMETER session_replication_role TO {USER}",
        f"ALTER DATABASE {DATABASE} RENAME TO {TEMPLATE}",
        f"CREATE DATABASE {DATABASE} OWNER {USER} TEMPLATE {TEMPLATE}",
    )


def main() -> None:
    if sys.argv[1] == "--keep":
        keep(Path(sys.argv[2]), int(sys.argv[3]))
        return
    # The owner is this process, which becomes the command.
    os.environ.pop(URL, None)
    choose_server()
    ensure_server()
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
