"""Backups of an instance whose database is on another server than its own; both ways between the two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.instance import Instance, InstanceError, load_instance
from supervise.postgres import data_folder
from tests.commands.backups import fill_database, silent, things, was_killed_at
from tests.commands.own_servers import own_database, remove_database

pytestmark = pytest.mark.usefixtures("own_server")


@pytest.fixture
def other_server(short_dir: Path) -> Iterator[Instance]:
    """Yield the server of another instance, which runs; to the tested instance it is one that the operator named."""
    instance = load_instance(short_dir / "server", 8999)
    with own_database(instance):
        yield instance


@contextmanager
def database(server: Instance, name: str) -> Iterator[str]:
    url = server.settings({}).database_url
    with psycopg.connect(url.replace("platform@/platform", "postgres@/postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER platform".encode())
        yield url.replace("/platform?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def elsewhere(original: Instance, other_server: Instance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """The instance that is backed up, with its database on the other server."""
    remove_database(original)
    with database(other_server, "backup_original") as url:
        monkeypatch.setenv("PLATFORM_DATABASE_URL", url)
        with psycopg.connect(url) as connection:
            fill_database(connection)
        yield original


def things_at(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM things").fetchall()]


def test_a_restore_killed_at_any_step_goes_on_in_an_empty_database(
    elsewhere: Instance, other_server: Instance, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, target = back_up(elsewhere, str(short_dir / "backups"), silent), short_dir / "target"
    assert (made / "database.dump").stat().st_mode & 0o777 == 0o600
    with database(other_server, "backup_restored") as url:
        monkeypatch.setenv("PLATFORM_DATABASE_URL", url)
        steps = 1
        while was_killed_at(steps, lambda: restore_backup(str(made), str(target), "", silent)):
            steps += 1
        assert steps > 10
        assert things_at(url) == ["kept"]
        monkeypatch.delenv("PLATFORM_DATABASE_URL")
        restored = load_instance(target)
        assert restored.settings().database_url == url
        assert not data_folder(restored).exists()


def test_a_database_with_tables_is_refused(elsewhere: Instance, short_dir: Path) -> None:
    made, target = str(back_up(elsewhere, str(short_dir / "backups"), silent)), short_dir / "target"
    with pytest.raises(InstanceError, match="has tables already"):
        restore_backup(made, str(target), "", silent)
    assert not target.exists()


def test_a_backup_is_restored_to_the_other_kind_of_server(
    elsewhere: Instance, other_server: Instance, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(elsewhere, str(short_dir / "backups"), silent)
    monkeypatch.delenv("PLATFORM_DATABASE_URL")
    own = restore_backup(str(made), str(short_dir / "own"), "", silent)
    assert things(own.state) == ["kept"]
    again = back_up(own, str(short_dir / "again"), silent)
    with database(other_server, "backup_moved") as url:
        monkeypatch.setenv("PLATFORM_DATABASE_URL", url)
        restore_backup(str(again), str(short_dir / "moved"), "", silent)
        assert things_at(url) == ["kept"]
