"""A PostgreSQL server in a folder, reached on a Unix socket: how tests and benchmarks make and run one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

# As in an instance: the platform's role has its database and no rights beyond that.
DATABASE = USER = "platform"
SUPERUSER = "postgres"
START_SECONDS = 120.0
# What a crash would lose does not matter to a test, and tests commit often.
UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "128MB"}
# By which statements are planned (supervise/postgres.py).
AS_INSTANCES = {"jit": "off", "max_parallel_workers_per_gather": "0"}
DURABLE = {"fsync": "on", "full_page_writes": "on"}


def initialize_data(data: Path) -> None:
    """Make a data folder without a database and without a role but the superuser's."""
    data.mkdir(mode=0o700)
    give_to_owner(data)
    options = ["--username", SUPERUSER, "--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    # With segments of 16 MiB the log of writes is the largest part of each copy.
    command = [_program("initdb"), "--pgdata", str(data), *options, "--wal-segsize", "1"]
    subprocess.run(_as_owner(*command), check=True, stdout=subprocess.DEVNULL, cwd="/")


def give_to_owner(folder: Path) -> None:
    """Give all in a folder to the user who runs servers: PostgreSQL refuses root."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "--recursive", "postgres:postgres", str(folder)], check=True)


def url_of(sockets: Path, database: str = DATABASE, user: str = USER) -> str:
    """Return the URL of a database of the server whose socket is in this folder."""
    return f"postgresql://{user}@/{database}?host={sockets}"


def execute_as_superuser(sockets: Path, *statements: str) -> None:
    """Execute statements on the server whose socket is in this folder."""
    with closing(psycopg.connect(url_of(sockets, "postgres", SUPERUSER), autocommit=True)) as server:
        for statement in statements:
            server.execute(statement.encode())


@contextmanager
def running_server(data: Path, sockets: Path, settings: Mapping[str, str] = UNSAFE) -> Iterator[None]:
    """Run the server of a data folder within the block; `sockets` is a folder that its user can write.

    It ends with this process, also where that is killed. Raises CalledProcessError, TimeoutError where it does not
    start, with what it wrote.
    """
    given = {"listen_addresses": "", "unix_socket_directories": str(sockets), "max_connections": "200"}
    given |= {**AS_INSTANCES, **settings}
    options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
    with (sockets / "log").open("ab") as log:
        # In a session of its own: Ctrl-C is for the tests, which still clean up.
        process = subprocess.Popen(
            _as_owner(_program("postgres"), "-D", str(data), *options),
            stdout=log, stderr=log, cwd="/", start_new_session=True,
        )  # fmt: skip
    try:
        _wait_until_ready(process, sockets)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # without a wait for those who are connected; what it holds is written
        process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], sockets: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            execute_as_superuser(sockets)
        except psycopg.OperationalError:
            if process.poll() is not None:
                wrote = (sockets / "log").read_text()
                raise subprocess.CalledProcessError(process.returncode, process.args, stderr=wrote) from None
            time.sleep(0.02)
        else:
            return
    raise TimeoutError((sockets / "log").read_text())


def _program(name: str) -> str:
    """Return the path of a program of the newest version that is installed."""
    found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    return str(max(found, key=lambda path: int(path.parts[-3])))


def _as_owner(*command: str) -> list[str]:
    """Return the command as run by the user who runs servers, ended with its parent."""
    owner = ["--reuid", "postgres", "--regid", "postgres", "--init-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *owner, "--pdeathsig", "QUIT", "--", *command]
