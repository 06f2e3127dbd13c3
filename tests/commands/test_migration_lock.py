"""A host that waits for another one's migrations says so, gives up in time, and ends with the command that began it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from supervise import migration_lock, prepare
from supervise.configuration import process_environment
from supervise.database import REPORT
from supervise.instance import ROOT
from supervise.migration_lock import LOCK, Holder, LockNotHad, take_migration_lock
from tests.database_server import new_database
from tests.vm.client import until
from tests.vm.instances import TestInstance, new_instance

# It ends with an error once its progress was read.
UNTIL_READ = """
import pathlib, sys, time
print("{}waiting", flush=True)
while not pathlib.Path("{}").exists():
    time.sleep(0.01)
sys.stderr.write("other")
sys.exit(7)
"""
Session = psycopg.Connection[tuple[object, ...]]


def test_the_holder_is_named_by_host_address_and_times() -> None:
    since = datetime(2026, 11, 26, 13, 5, 10, tzinfo=UTC)
    holder = Holder(4711, "migrations of one", "10.0.0.5", since, "active", 12.4)
    assert str(holder) == (
        "migrations of one, session 4711 from 10.0.0.5 since 2026-11-26 13:05:10 UTC, active for 12 s"
    )
    # To a role that may not see the others' sessions.
    assert str(Holder(4711, None, None, None, None, None)) == "session 4711 of another role"


def test_progress_of_the_preparing_process_is_seen_while_it_runs(tmp_path: Path) -> None:
    seen = []
    read = tmp_path / "read"

    def report(text: str) -> None:
        seen.append(text)
        read.touch()

    command = [sys.executable, "-c", UNTIL_READ.format(REPORT, read)]
    assert prepare._run_reporting(command, dict(os.environ), report) == (7, "other")
    assert seen == ["waiting"]


def other_session(url: str) -> Session:
    """Of another host that migrates."""
    session: Session = psycopg.connect(url, autocommit=True, application_name="migrations of another")
    session.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    return session


@pytest.fixture
def test_url() -> str:
    """Of the tests' own database."""
    known = connection.settings_dict
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "password": known["PASSWORD"]}
    return make_conninfo(dbname=known["NAME"], **{key: value for key, value in parts.items() if value})


@pytest.fixture
def own_session(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Made for this test, with its lock and its settings, and not used by others afterwards."""
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", dict(connection.settings_dict["OPTIONS"]))
    monkeypatch.setattr(migration_lock, "FIRST_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(migration_lock, "POLL_SECONDS", 0.05)
    connection.close()
    connection.close_pool()
    yield
    connection.close()
    connection.close_pool()


@pytest.mark.django_db(transaction=True)
def test_a_host_that_waits_names_the_one_that_migrates_and_gives_up(own_session: None, test_url: str) -> None:
    seen: list[str] = []
    with other_session(test_url) as other:
        with pytest.raises(LockNotHad) as raised:
            take_migration_lock("here", 0.3, os.getppid(), seen.append)
        pid = other.info.backend_pid
    named = f"migrations of another, session {pid} on the database's own host since 20"
    assert len(seen) == 1  # and the next a minute later
    assert named in seen[0]
    assert named in str(raised.value)
    assert "PLATFORM_MIGRATION_WAIT_SECONDS" in str(raised.value)
    assert f"pg_terminate_backend({pid})" in str(raised.value)


@pytest.mark.django_db(transaction=True)
def test_a_host_goes_on_when_the_other_one_has_ended(own_session: None, test_url: str) -> None:
    seen: list[str] = []
    with other_session(test_url) as other:

        def report(text: str) -> None:
            seen.append(text)
            other.close()

        take_migration_lock("here", 120, os.getppid(), report)
    assert len(seen) == 2
    with psycopg.connect(test_url, autocommit=True) as third:
        assert third.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone() == (False,)
        holder = migration_lock._holder(third.cursor())
        assert holder is not None
        assert holder.name == "migrations of here"
    with connection.cursor() as cursor:
        # Those of TCP are 0 on a Unix socket.
        cursor.execute("SHOW client_connection_check_interval")
        assert cursor.fetchone() == ("30s",)


@pytest.mark.django_db(transaction=True)
def test_a_host_takes_no_lock_where_its_command_is_gone(own_session: None, test_url: str) -> None:
    with pytest.raises(SystemExit):
        take_migration_lock("here", 120, -1, print)
    with psycopg.connect(test_url, autocommit=True) as third:
        assert third.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone() == (True,)


@pytest.fixture
def host() -> Iterator[TestInstance]:
    """Its database is on a server that other hosts use, too."""
    with new_database() as url:
        settings = {"PLATFORM_DATABASE_URL": url, "PLATFORM_MIGRATION_WAIT_SECONDS": "1"}
        with new_instance(images=False, PLATFORM_VM_BACKEND="fake", **settings) as made:
            yield made


def waiting_sessions(other: Session, host: TestInstance) -> list[tuple[object, ...]]:
    name = f"migrations of {host.settings.host_name}"
    return other.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", [name]).fetchall()


def test_a_start_that_waits_for_too_long_ends_with_a_sentence(host: TestInstance) -> None:
    with other_session(host.settings.database_url):
        done = host.command("prepare")
    assert done.returncode == 1
    assert done.stderr.startswith("Another host migrates the database")
    assert "migrations of another" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_host_that_waits_says_so_and_ends_with_its_command(host: TestInstance) -> None:
    """However that ends: else it would migrate at a time when no one expects it."""
    patient = host.settings.model_copy(update={"migration_wait_seconds": 600})
    environment = process_environment(host.instance, patient)
    with other_session(host.settings.database_url) as other:
        command = [sys.executable, "-m", "supervise", "prepare"]
        with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as started:
            try:
                assert started.stdout is not None
                line = next(each for each in started.stdout if "waiting" in each)
                assert "migrations of another" in line
                assert waiting_sessions(other, host)
            finally:
                with suppress(ProcessLookupError):
                    os.kill(started.pid, signal.SIGKILL)
        until(lambda: not waiting_sessions(other, host), 60, "the process that waits has ended")
        tables = other.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'django_migrations'")
        assert tables.fetchone() == (0,)
