"""The PostgreSQL that an instance has for itself: its limits, and what a killed one leaves."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from supervise import control, postgres
from supervise.configuration import process_environment
from supervise.instance import ROOT, Instance, InstanceError, load_instance
from supervise.orphans import environment_of
from supervise.postgres import data_folder, make_data_folder
from supervise.postgres_processes import end_server, is_ready, server_processes, wait_until_ready
from supervise.postgres_server import running_server
from supervise.prepare import prepare_instance
from supervise.processes import processes
from tests.commands.own_servers import own_database, put_empty_database
from tests.commands.running import processes_named
from tests.commands.test_supervise import running, silent, start, wait_until
from tests.processes import is_running

pytestmark = pytest.mark.usefixtures("own_server")
Make = Callable[[str], Instance]


@pytest.fixture
def instance(make_instance: Make) -> Iterator[Instance]:
    made = make_instance("one")
    put_empty_database(made)
    yield made
    end_server(data_folder(made))


def main_process(instance: Instance) -> int:
    return int((data_folder(instance) / "postmaster.pid").read_text().splitlines()[0])


def kill_all(instance: Instance) -> None:
    """As where the machine loses its power, the main process first: it would say so to the others."""
    for pid in (main_process(instance), *server_processes(data_folder(instance))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not server_processes(data_folder(instance)))


def test_what_was_answered_is_on_the_disk_and_nothing_listens_on_a_network(make_instance: Make) -> None:
    """The data folder is as every instance makes it, below a folder that only its owner can search."""
    instance = make_instance("one")
    instance.state.parent.chmod(0o700)
    make_data_folder(data_folder(instance))
    names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses", "is_superuser")
    with own_database(instance) as connection:
        found = [connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in names]
        main = main_process(instance)
        environment = environment_of(main)
    assert found == [("on",), ("on",), ("on",), ("",), ("off",)]
    assert not [name for name in environment if "SECRET" in name]
    assert is_running(main) is False


def test_only_users_of_the_instance_get_in(instance: Instance) -> None:
    other = pwd.getpwnam("nobody")
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(data_folder(instance) / '.s.PGSQL.5432')!r})"
    with own_database(instance):
        # Also where the folder is opened to all: the socket itself is not.
        data_folder(instance).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", code], user=other.pw_uid, group=other.pw_gid, capture_output=True, text=True,
            check=False, cwd="/",
        )  # fmt: skip
        data_folder(instance).chmod(0o700)
    assert "Permission denied" in done.stderr


def test_there_is_a_connection_for_each_of_all_pools(instance: Instance) -> None:
    settings = instance.settings({"PLATFORM_API_WORKERS": "3", "PLATFORM_VMHOST_THREADS": "64"})
    with running_server(instance, settings), psycopg.connect(settings.database_url) as connection:
        found = connection.execute("SELECT current_setting('max_connections')::int").fetchone()
    others = [process.name for process in processes(instance, settings) if process.after]
    pools = 20 * (3 + settings.worker_processes + 1) + 72 + 20 * len({*others} - {"api", "worker", "vmhost"})
    assert found is not None
    assert found[0] >= pools + 40


def test_a_data_folder_of_another_version_is_a_sentence_before_anything_starts(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder(instance) / "PG_VERSION").write_text("9\n")
    monkeypatch.setattr("supervise.prepare.build_guest_kit", lambda _: pytest.fail("something was begun"))
    with pytest.raises(InstanceError, match=r"is of PostgreSQL 9, and this host has [\d, ]+: install postgresql-9, or"):
        prepare_instance(instance, instance.settings({}))
    assert not server_processes(data_folder(instance))


def test_a_server_that_waits_for_its_connections_to_end_is_not_waited_for(instance: Instance) -> None:
    data, settings = data_folder(instance), instance.settings({})
    with running_server(instance, settings), psycopg.connect(settings.database_url):
        os.kill(main_process(instance), signal.SIGTERM)
        wait_until(lambda: not is_ready(data))
        assert not wait_until_ready(data, 10.0)
        assert not server_processes(data)


@pytest.mark.parametrize("is_link", [False, True])
def test_a_database_that_is_gone_is_a_sentence_and_no_empty_one(instance: Instance, *, is_link: bool) -> None:
    """Its disk may not be mounted. An empty one would have all machines and files removed as orphans."""
    data, settings = data_folder(instance), instance.settings({})
    with own_database(instance):
        pass
    data.rename(instance.state / "elsewhere")
    if is_link:
        data.symlink_to(instance.state / "nowhere")
    with pytest.raises(InstanceError, match=r"is not in .*data any more: bring it back"):
        prepare_instance(load_instance(instance.state), settings)
    assert not data.exists()
    data.unlink(missing_ok=True)
    (instance.state / "elsewhere").rename(data)
    with own_database(load_instance(instance.state)):
        assert is_ready(data)


@pytest.mark.parametrize("content", [b"", b"\xff\x00\xff", b"../..\n"])
def test_a_data_folder_whose_version_was_damaged_is_a_sentence(instance: Instance, content: bytes) -> None:
    (data_folder(instance) / "PG_VERSION").write_bytes(content)
    with pytest.raises(InstanceError, match=r"is not a data folder of PostgreSQL .*restore a backup"):
        prepare_instance(instance, instance.settings({}))


def test_a_host_without_postgresql_is_a_sentence(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "PROGRAMS", tmp_path)
    with pytest.raises(InstanceError, match="PostgreSQL is not installed: `make setup` installs it"):
        prepare_instance(instance, instance.settings({}))


def test_the_folder_of_a_version_with_another_database_is_refused(instance: Instance) -> None:
    (instance.state / "db.sqlite3").touch()
    with pytest.raises(InstanceError, match="of an earlier version, which this one does not read: move the file away"):
        prepare_instance(instance, instance.settings({}))


def test_a_data_folder_that_was_half_made_is_made_again(instance: Instance) -> None:
    data = data_folder(instance)
    half = data.with_name(".data.0a1b2c3d")
    data.rename(half)
    (half / "PG_VERSION").unlink()
    with own_database(instance) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert [path.name for path in data.parent.iterdir()] == ["data"]


def test_a_state_folder_of_any_name_has_a_database(short_dir: Path) -> None:
    instance = load_instance(short_dir / "a,b@c=d+e" / ("long" * 20), 8001)
    put_empty_database(instance)
    try:
        with own_database(instance) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        instance.short.unlink()


def test_what_a_killed_server_left_prevents_no_start(instance: Instance) -> None:
    """Also where its process id is another program's by now, of the same user."""
    data = data_folder(instance)
    with own_database(instance) as connection:
        connection.execute("SET synchronous_commit = on")
        connection.execute("CREATE TABLE kept AS SELECT 42 AS value")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (43)")
        kill_all(instance)
        connection.close()
    owner = data.stat()
    with subprocess.Popen(["sleep", "600"], user=owner.st_uid, group=owner.st_gid, extra_groups=[]) as other:
        try:
            for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
                _, _, lines = (data / name).read_text().partition("\n")
                (data / name).write_text(f"{other.pid}\n{lines}")
            assert not is_ready(data)
            with own_database(instance) as connection:
                assert connection.execute("SELECT value FROM kept").fetchall() == [(42,)]
            assert is_running(other.pid)
        finally:
            other.kill()


def test_sessions_of_a_killed_server_are_ended_before_the_next_one_starts(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(instance, monkeypatch, *processes_named(instance, "postgres"))
    data, url = data_folder(instance), instance.settings({}).database_url
    wait_until(lambda: is_ready(data))
    with psycopg.connect(url) as connection:
        busy = connection.info.backend_pid
        thread = threading.Thread(target=run_until_cut_off, args=(connection,))
        thread.start()
        wait_until(lambda: is_busy(url, busy))
        before = main_process(instance)
        # Its sessions find out at their next statement, and this one's takes a minute.
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: is_ready(data) and main_process(instance) != before, 60)
        assert not is_running(busy)
        thread.join(60)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert control.stop_instance(instance, silent)
    assert not server_processes(data)


def run_until_cut_off(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    code = "DO $$ DECLARE t timestamptz := clock_timestamp(); BEGIN"
    code += " WHILE clock_timestamp() < t + interval '1 min' LOOP END LOOP; END $$"
    with suppress(psycopg.OperationalError):
        connection.execute(code.encode())


def is_busy(url: str, pid: int) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
    return row == ("active",)


def test_a_server_whose_supervisor_was_killed_is_ended_with_the_rest(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = start(instance, monkeypatch, *processes_named(instance, "postgres"))
    wait_until(lambda: is_ready(data_folder(instance)))
    supervisor.kill()
    supervisor.wait()
    assert control.stop_instance(instance, silent)
    assert not server_processes(data_folder(instance))


def test_a_server_that_a_command_needs_outlasts_a_stop_and_delays_a_start(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration must not be ended half way; and two servers of one data folder would destroy it."""
    data = data_folder(instance)
    with own_database(instance) as connection:
        before = server_processes(data)
        assert not control.stop_instance(instance, silent)
        monkeypatch.setattr(control, "processes", lambda *_: processes_named(instance, "postgres"))
        control.start_supervisord(instance, instance.settings({}), tied=False)
        wait_until(lambda: running(instance))
        time.sleep(0.5)
        assert before <= server_processes(data) | {connection.info.backend_pid}
        assert connection.execute("SELECT 1").fetchone() == (1,)
    wait_until(lambda: is_ready(data) and not before & server_processes(data))
    # And a command uses the one that runs.
    now = main_process(instance)
    with own_database(instance):
        assert main_process(instance) == now
    assert is_ready(data)


def test_a_command_that_is_late_ends_no_server_that_works(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    start(instance, monkeypatch, *processes_named(instance, "postgres"))
    wait_until(lambda: is_ready(data_folder(instance)))
    before = main_process(instance)
    environment = process_environment(instance, instance.settings({}))
    command = [*postgres.server_command(instance), "--tied"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "was there first" in done.stderr
    assert main_process(instance) == before
    assert is_ready(data_folder(instance))


def test_commands_at_once_have_one_server_until_the_last_one_ends(instance: Instance) -> None:
    def use(seconds: float) -> int:
        with own_database(instance) as connection:
            time.sleep(seconds)
            connection.execute("SELECT 1")
            return main_process(instance)

    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(use, (1.0, 2.0, 3.0)))
    assert len(found) == 1
    assert not server_processes(data_folder(instance))


@contextmanager
def command_with_server(instance: Instance) -> Iterator[subprocess.Popen[str]]:
    code = (
        "import time; from supervise.instance import load_instance\n"
        "from supervise.postgres_server import running_server\n"
        "instance = load_instance()\n"
        "with running_server(instance, instance.settings()):\n"
        "    print('up', flush=True); time.sleep(600)"
    )
    environment = process_environment(instance, instance.settings({}))
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_server_ends_with_the_killed_command_that_needed_it(instance: Instance) -> None:
    with command_with_server(instance) as command:
        assert is_ready(data_folder(instance))
        command.kill()
        wait_until(lambda: not server_processes(data_folder(instance)))


def test_removing_an_instance_ends_its_server(instance: Instance) -> None:
    from supervise.removal import remove_instance

    with command_with_server(instance):
        remove_instance(instance, silent)
    assert not instance.state.exists()
