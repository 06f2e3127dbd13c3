"""The instance's own PostgreSQL for commands that need it while the instance may be down: migrations, backups."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.env import Env
from supervise.configuration import process_environment
from supervise.control import exclusive_control
from supervise.instance import ROOT, Instance, InstanceError
from supervise.orphans import DATABASE_ROLE
from supervise.postgres import (
    data_folder,
    make_data_folder,
    require_fitting_programs,
    server_command,
    write_server_configuration,
)
from supervise.postgres_processes import hasten_end, is_ready, server_processes
from supervise.state_folder import record_database

# A server that was killed under load reads what it has not written yet from its log: up to max_wal_size.
READY_SECONDS = 600.0
_POLL_SECONDS = 0.05


@contextmanager
def running_server(instance: Instance, settings: Env) -> Iterator[None]:
    """Within the block the instance's own server answers: the one that runs, or else one that is started for it, which
    also ends with this process. Nothing happens if the operator named another server. Raise InstanceError.

    A second command may use the server of the first one, which waits for its end.
    """
    if not settings.has_own_server:
        yield
        return
    require_fitting_programs(instance)
    with (instance.run_dir / "postgres.lock").open("w") as users:
        # From now on no other command shuts its server down.
        fcntl.flock(users, fcntl.LOCK_SH)
        with exclusive_control(instance, "postgres-start"):
            make_data_folder(data_folder(instance))
            record_database(instance.state)
            server = _started_where_none_runs(instance, settings)
        try:
            yield
        finally:
            if server is not None:
                fcntl.flock(users, fcntl.LOCK_EX)
                _shut_down(server)


def require_database(instance: Instance, settings: Env) -> None:
    """Raise InstanceError if the instance is to have a database of its own, and none was made yet."""
    if settings.has_own_server and not data_folder(instance).exists():
        raise InstanceError(f"{instance.state} has no database yet: `make up` or `make run` makes it.")


def _started_where_none_runs(instance: Instance, settings: Env) -> subprocess.Popen[bytes] | None:
    """Return once a server answers; the one that was started for that."""
    data, server = data_folder(instance), None
    deadline = time.monotonic() + READY_SECONDS
    try:
        while not is_ready(data):
            if server is None and not server_processes(data):
                server = _start(instance, settings)
            if server is not None and server.poll() is not None:
                if not server_processes(data):
                    raise InstanceError(f"PostgreSQL ended with {server.returncode}: {_last_line(instance)}")
                server = None  # another one was there first
            hasten_end(data)
            if time.monotonic() > deadline:
                raise InstanceError(f"PostgreSQL does not answer after {READY_SECONDS:.0f} s; see {_log(instance)}.")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        if server is not None:
            _shut_down(server)
        raise
    return server


def _start(instance: Instance, settings: Env) -> subprocess.Popen[bytes]:
    """Start the server without the mark of supervised processes: a `make down` at this moment must not end a migration
    half way.
    """
    write_server_configuration(instance, settings)
    with _log(instance).open("ab") as log:
        return subprocess.Popen(
            [*server_command(instance), "--tied"],
            cwd=ROOT,
            env=process_environment(instance, settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C reaches the whole foreground group; the command that needs the server ends it when it has ended.
            start_new_session=True,
        )


def _shut_down(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGINT)
    try:
        server.wait(60)
    except subprocess.TimeoutExpired:
        server.send_signal(signal.SIGQUIT)
        server.wait()


def _log(instance: Instance) -> Path:
    return instance.log_dir / f"{DATABASE_ROLE}.log"


def _last_line(instance: Instance) -> str:
    lines = _log(instance).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"
