"""Backups of an instance whose database is a PostgreSQL; only where the tests run on one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.instance import Instance, InstanceError, load_instance
from tests.commands.backups import fill, was_killed_at

SERVER = os.environ.get("PLATFORM_DATABASE_URL", "")
pytestmark = [
    pytest.mark.rows,
    pytest.mark.skipif(not SERVER.startswith("postgres"), reason="`make test-postgres` runs these."),
]


def silent(_: str) -> None:
    pass


@contextmanager
def database(name: str) -> Iterator[str]:
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(SERVER)._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def original(make_instance: Callable[[str], Instance], monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.setattr(os, "sync", lambda: None)
    made = make_instance("original")
    fill(made)
    (made.state / "db.sqlite3").unlink()
    with database("backup_original") as url:
        monkeypatch.setenv("PLATFORM_DATABASE_URL", url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE django_migrations (app text, name text)")
            connection.execute("INSERT INTO django_migrations VALUES ('accounts', '0001_initial')")
            connection.execute("CREATE TABLE things (name text)")
            connection.execute("INSERT INTO things VALUES ('kept')")
        yield made


def things(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM things").fetchall()]


def test_a_restore_killed_at_any_step_goes_on_in_an_empty_database(
    original: Instance, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, target = back_up(original, str(short_dir / "backups"), silent), short_dir / "target"
    assert (made / "database.dump").stat().st_mode & 0o777 == 0o600
    with database("backup_restored") as url:
        monkeypatch.setenv("PLATFORM_DATABASE_URL", url)
        steps = 1
        while was_killed_at(steps, lambda: restore_backup(str(made), str(target), "", silent)):
            steps += 1
        assert steps > 10
        assert things(url) == ["kept"]
        monkeypatch.delenv("PLATFORM_DATABASE_URL")
        assert load_instance(target).settings().database_url == url


def test_a_database_with_tables_or_of_another_kind_is_refused(
    original: Instance, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, target = str(back_up(original, str(short_dir / "backups"), silent)), short_dir / "target"
    with pytest.raises(InstanceError, match="has tables already"):
        restore_backup(made, str(target), "", silent)
    monkeypatch.setenv("PLATFORM_DATABASE_URL", f"sqlite:///{short_dir}/other.sqlite3")
    with pytest.raises(InstanceError, match="is of postgresql, and the settings name a database of sqlite"):
        restore_backup(made, str(target), "", silent)
    assert not target.exists()
