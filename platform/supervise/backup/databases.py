"""Consistent copies of the database: by SQLite's backup, or by pg_dump, both while others write."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from supervise.backup.copying import run_program
from supervise.instance import InstanceError

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_FILE = {SQLITE: "database.sqlite3", POSTGRESQL: "database.dump"}
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


def kind_of(url: str) -> str:
    return SQLITE if url.startswith("sqlite:") else POSTGRESQL


def sqlite_path(url: str) -> Path:
    return Path("/" + unquote(urlsplit(url).path).lstrip("/"))


def save_database(url: str, folder: Path) -> None:
    """Write a copy of one moment into the folder, complete or not at all. Raises InstanceError."""
    target = folder / _FILE[kind_of(url)]
    beside = target.with_suffix(".partial")
    if kind_of(url) == SQLITE:
        _copy_sqlite(sqlite_path(url), beside)
    else:
        # Made by us: pg_dump's own file would have the rights of its umask.
        beside.unlink(missing_ok=True)
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        run_program(
            ["pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={beside}"], env=_libpq(url)
        )
    beside.replace(target)


def restore_database(url: str, folder: Path, kind: str) -> None:
    """Into a database that is empty, or that has what a call before has restored completely. Raises InstanceError."""
    source = folder / _FILE[kind]
    if kind == SQLITE:
        target = sqlite_path(url)
        beside = target.with_suffix(".partial")
        _copy_sqlite(source, beside)
        beside.replace(target)
    elif not _has_tables(url):
        one = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
        run_program(["pg_restore", *one, f"--dbname={_libpq(url)['PGDATABASE']}", str(source)], env=_libpq(url))


def require_restorable(url: str, kind: str) -> None:
    """Raises InstanceError where the database is of another kind, has something already, or cannot be reached."""
    if kind_of(url) != kind:
        raise InstanceError(f"The backup is of {kind}, and the settings name a database of {kind_of(url)}.")
    if kind == SQLITE:
        if sqlite_path(url).exists():
            raise InstanceError(f"The database {sqlite_path(url)} exists already; nothing is restored over it.")
    elif _has_tables(url):
        raise InstanceError(
            "The database that the settings name has tables already. Name an empty one: "
            "PLATFORM_DATABASE_URL=... make restore ..."
        )


def applied_migrations(url: str, folder: Path | None = None) -> list[str]:
    """As `app.name`. On SQLite of the copy in `folder`, if given. A PostgreSQL is asked itself: a migration while it is
    copied would need the instance to be down. Raises InstanceError.
    """
    try:
        if kind_of(url) == POSTGRESQL:
            with psycopg.connect(url, connect_timeout=10) as server:
                return [f"{app}.{name}" for app, name in server.execute(_MIGRATIONS.encode()).fetchall()]
        path = folder / _FILE[SQLITE] if folder else sqlite_path(url)
        with closing(_read_only(path)) as connection:
            return [f"{app}.{name}" for app, name in connection.execute(_MIGRATIONS)]
    except (sqlite3.Error, psycopg.Error) as error:
        raise InstanceError(f"The migrations of the database cannot be read: {error}") from error


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=60)


def _copy_sqlite(source: Path, target: Path) -> None:
    """Raises InstanceError."""
    target.unlink(missing_ok=True)
    try:
        with closing(_read_only(source)) as origin:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(target)) as copy:
                # A copy in one step is of one moment; a step by step one begins again at each write of others.
                origin.backup(copy, pages=-1)
                copy.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise InstanceError(f"The database {source} cannot be copied: {error}.") from error


def _libpq(url: str) -> dict[str, str]:
    """The environment of PostgreSQL's programs: a password has no place on a command line."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    return {**os.environ, **{_LIBPQ[key]: str(value) for key, value in parts.items() if key in _LIBPQ}}


def _has_tables(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            return bool(connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public' LIMIT 1").fetchone())
    except psycopg.Error as error:
        raise InstanceError(f"The database that the settings name cannot be reached: {error}") from error
