"""Consistent copies of the database by pg_dump, while others write."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psycopg

from config.env import Env
from supervise.backup.copying import run_program
from supervise.instance import Instance, InstanceError
from supervise.postgres import data_folder
from supervise.postgres_launcher import data_version, program_of

_FILE = "database.dump"
# Entries of a copy that are not restored.
_OF_HOSTS = (" POLICY ", " ROW SECURITY ")
_LIBPQ = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "hostaddr": "PGHOSTADDR",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcrl": "PGSSLCRL",
    "channel_binding": "PGCHANNELBINDING",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "options": "PGOPTIONS",
}
_MIGRATIONS = "SELECT app, name FROM django_migrations ORDER BY app, name"


def save_database(instance: Instance, settings: Env, folder: Path) -> None:
    """Write a copy of one moment into the folder, complete or not at all. The server runs. Raise InstanceError."""
    target = folder / _FILE
    beside = target.with_suffix(".partial")
    # Made by us: pg_dump's own file would have the rights of its umask.
    beside.unlink(missing_ok=True)
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    # The functions that make roles are the superuser's, and each start installs them.
    kept = ["--format=custom", "--no-owner", "--no-privileges", "--exclude-schema=host_roles"]
    options = [*kept, f"--file={beside}"]
    run_program([_program(instance, settings, "pg_dump"), *options], env=_libpq(settings.database_url))
    beside.replace(target)


def restore_database(instance: Instance, settings: Env, folder: Path) -> None:
    """Restore into a database that is empty, or that an earlier call has restored completely. The server runs.

    Raise InstanceError.
    """
    if _has_tables(settings.database_url):
        return
    environment = _libpq(settings.database_url)
    one = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    program = _program(instance, settings, "pg_restore")
    with tempfile.NamedTemporaryFile("w") as wanted:
        run_program([program, "--list", f"--file={wanted.name}", str(folder / _FILE)], env=environment)
        entries = Path(wanted.name).read_text().splitlines(keepends=True)
        # The next start makes what hosts may do; the server need not have their role.
        Path(wanted.name).write_text("".join(line for line in entries if not any(kind in line for kind in _OF_HOSTS)))
        named = [f"--use-list={wanted.name}", f"--dbname={environment['PGDATABASE']}", str(folder / _FILE)]
        run_program([program, *one, *named], env=environment)


def require_restorable(settings: Env) -> None:
    """Raise InstanceError if the server that the operator named has something already, or cannot be reached."""
    if not settings.has_own_server and _has_tables(settings.database_url):
        raise InstanceError(
            "The database that the settings name has tables already. Name an empty one: "
            "PLATFORM_DATABASE_URL=... make restore ..."
        )


def applied_migrations(url: str) -> list[str]:
    """Return the migrations as `app.name`. The server itself is asked, not the copy: a migration while it is copied
    would need the instance to be down. Raise InstanceError.
    """
    try:
        with psycopg.connect(url, connect_timeout=10) as server:
            return [f"{app}.{name}" for app, name in server.execute(_MIGRATIONS.encode()).fetchall()]
    except psycopg.Error as error:
        raise InstanceError(f"The migrations of the database cannot be read: {error}") from error


def _program(instance: Instance, settings: Env, name: str) -> str:
    """Return the program of the version of the instance's own server, or this host's if the server is another one."""
    if not settings.has_own_server:
        return name
    return str(program_of(data_version(data_folder(instance)), name))


def _libpq(url: str) -> dict[str, str]:
    """Return the environment of PostgreSQL's programs: a password has no place on a command line."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return {**os.environ, **{_LIBPQ[key]: str(value) for key, value in parts.items() if key in _LIBPQ}}


def _has_tables(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            return bool(connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1").fetchone())
    except psycopg.Error as error:
        raise InstanceError(f"The database that the settings name cannot be reached: {error}") from error
