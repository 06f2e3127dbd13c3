"""Starting and stopping an instance: with the real supervisor and stub processes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise import control
from supervise.instance import ROOT, Instance, InstanceError, load_instance
from supervise.logs import followed
from supervise.orphans import MARKER, environment_of
from supervise.processes import Process, processes
from supervise.procfile import procfile
from tests.commands.conftest import sleeping_process
from tests.processes import is_running

Make = Callable[..., Instance]


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)


def silent(_: str) -> None:
    pass


def start(instance: Instance, monkeypatch: pytest.MonkeyPatch, *listed: Process) -> subprocess.Popen[bytes]:
    monkeypatch.setattr(control, "processes", lambda instance, settings: list(listed))
    started = control.start_supervisord(instance, instance.settings({}), tied=False)
    wait_until(lambda: len(running(instance)) == len(listed))
    return started


def running(instance: Instance) -> dict[str, int]:
    return {row.name: row.pid for row in control.process_states(instance) if row.state == "RUNNING"}


def processes_of(instance: Instance) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in numbers if environment_of(pid).get(MARKER) == instance.id and is_running(pid)]


def test_stopping_one_instance_does_not_affect_another(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = make_instance("one"), make_instance("two")
    start(one, monkeypatch, sleeping_process("a"), sleeping_process("b"))
    start(two, monkeypatch, sleeping_process("a"))
    before = running(two)
    assert control.stop_instance(one, silent)
    assert processes_of(one) == []
    assert running(two) == before


def test_processes_end_at_once_after_the_edge_and_before_the_database_and_redis(
    make_instance: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = make_instance()
    log = instance.run_dir / "order"
    slow = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    {wait}\n"
        f"    open({str(log)!r}, 'a').write('{{name}} ')\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)"
    )
    # Each of the others waits for all of them to be asked.
    count = f"open({str(log)!r}, 'a').write('asked '); "
    wait = count + f"[time.sleep(0.05) for _ in range(100) if open({str(log)!r}).read().count('asked') < 3]"
    wait += "; time.sleep(1)"  # so that all are there when what stops is shown
    codes = {name: slow.format(wait=wait, name=name) for name in ("a", "b", "c")}
    codes |= {name: slow.format(wait="pass", name=name) for name in ("redis", "postgres", "edge")}
    start(instance, monkeypatch, *(sleeping_process(name, code) for name, code in codes.items()))
    for name in codes:
        wait_until(lambda name=name: (instance.log_dir / f"{name}.log").read_text().startswith("up"))
    shown: list[str] = []
    assert control.stop_instance(instance, shown.append)
    first, *middle, database, last = log.read_text().split()
    assert (first, database, last) == ("edge", "postgres", "redis")
    assert middle[:3] == ["asked"] * 3
    assert sorted(middle[3:]) == ["a", "b", "c"]
    assert "stopping a, b, c" in shown


def test_a_killed_process_is_restarted(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make_instance()
    start(instance, monkeypatch, sleeping_process("a"))
    pid = running(instance)["a"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running(instance).get("a", pid) != pid)


def test_children_of_a_killed_process_do_not_outlive_it(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make_instance()
    fork = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    start(instance, monkeypatch, sleeping_process("a", fork))
    pid = running(instance)["a"]
    wait_until(lambda: len(processes_of(instance)) == 3)
    child = next(item for item in processes_of(instance) if item not in {pid, control.supervisor_pid(instance)})
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running(instance).get("a", pid) != pid)
    assert not is_running(child)


def test_down_stops_orphans_of_a_killed_supervisor(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make_instance()
    supervisor = start(instance, monkeypatch, sleeping_process("a"), sleeping_process("b"))
    supervisor.kill()
    supervisor.wait()
    assert len(processes_of(instance)) == 2
    assert control.stop_instance(instance, silent)
    assert processes_of(instance) == []
    assert not control.stop_instance(instance, silent)


def test_up_after_a_crash_replaces_orphans(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make_instance()
    supervisor = start(instance, monkeypatch, sleeping_process("a"))
    orphan = running(instance)["a"]
    supervisor.kill()
    supervisor.wait()
    start(instance, monkeypatch, sleeping_process("a"))
    assert not is_running(orphan)


def test_a_stale_pid_file_stops_no_foreign_process(make_instance: Make) -> None:
    instance = make_instance()
    foreign = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "supervisord"])
    try:
        (instance.run_dir / "supervisord.pid").write_text(str(foreign.pid))
        assert not control.stop_instance(instance, silent)
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_a_process_that_ignores_sigterm_is_killed(make_instance: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make_instance()
    stubborn = sleeping_process("a", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    start(instance, monkeypatch, stubborn)
    wait_until(lambda: (instance.log_dir / "a.log").read_text().startswith("up"))
    before = time.monotonic()
    control.stop_instance(instance, silent)
    assert processes_of(instance) == []
    assert time.monotonic() - before < 15


def test_a_port_in_use_is_an_error_and_nothing_is_started(make_instance: Make) -> None:
    import socket

    instance = make_instance()
    taken = socket.create_server(("127.0.0.1", instance.port))
    with taken, pytest.raises(InstanceError, match=str(instance.port)):
        control.start_supervisord(instance, instance.settings({}), tied=False)
    assert processes_of(instance) == []


@pytest.mark.parametrize("bind", ["garbage", "192.0.2.1", "2001:db8::1"])
def test_an_address_that_is_not_this_machines_is_an_error_that_says_so(make_instance: Make, bind: str) -> None:
    instance = make_instance()
    with pytest.raises(InstanceError, match="PLATFORM_BIND"):
        control.start_supervisord(instance, instance.settings({"PLATFORM_BIND": bind}), tied=False)
    assert processes_of(instance) == []


def test_a_tied_supervisor_ends_with_its_parent(make_instance: Make) -> None:
    instance = make_instance()
    program = f"""
import sys, time
from supervise.instance import load_instance
from supervise import control
from tests.commands.conftest import sleeping_process
control.processes = lambda instance, settings: [sleeping_process("a")]
instance = load_instance({str(instance.state)!r}, {instance.port})
control.start_supervisord(instance, instance.settings({{}}), tied=True)
time.sleep(600)
"""
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, **path})
    try:
        wait_until(lambda: running(instance))
    finally:
        starter.kill()
        starter.wait()
    wait_until(lambda: not processes_of(instance))


def test_the_procfile_matches_the_supervised_processes() -> None:
    assert (ROOT / "Procfile").read_text() == procfile()


def test_a_foreign_redis_is_not_started(make_instance: Make) -> None:
    instance = make_instance()
    settings = instance.settings({"PLATFORM_REDIS_URL": "redis://redis.example.org/0"})
    assert "redis" not in [process.name for process in processes(instance, settings)]


def test_vmhost_has_time_to_stop_machines_whatever_their_grace_time_is(make_instance: Make) -> None:
    instance = make_instance()
    for grace in (20, 200):
        settings = instance.settings({"PLATFORM_STOP_GRACE_SECONDS": str(grace)})
        vmhost = next(one for one in processes(instance, settings) if one.name == "vmhost")
        assert vmhost.stop_seconds == grace + 70


def test_beat_logs_warnings_only() -> None:
    assert logging.getLogger("celery.beat").getEffectiveLevel() == logging.WARNING


@pytest.fixture
def output() -> list[tuple[str, str]]:
    return []


def test_a_followed_log_loses_no_line_when_it_is_rotated(tmp_path: Path, output: list[tuple[str, str]]) -> None:
    path = tmp_path / "api.log"
    path.write_text("old\n")
    with followed([path], lambda name, text: output.append((name, text)), tail_lines=1):
        wait_until(lambda: output == [("api", "old")])
        # Only now does `tail` follow: before its first look it would take a file that was replaced for a new one.
        with path.open("a") as file:
            file.write("seen\n")
        wait_until(lambda: len(output) == 2)
        with path.open("a") as file:
            file.write("one\nhal")
            file.flush()
            file.write("f\nlast\n")
            file.flush()
            path.rename(tmp_path / "api.log.1")
        path.write_text("first of the new\n")
        wait_until(lambda: len(output) == 6)
    assert [text for _, text in output] == ["old", "seen", "one", "half", "last", "first of the new"]


def test_following_starts_with_the_last_lines_and_includes_new_files(
    tmp_path: Path, output: list[tuple[str, str]]
) -> None:
    (tmp_path / "api.log").write_text("".join(f"line {number}\n" for number in range(50)))
    logs = [tmp_path / "api.log", tmp_path / "worker.log"]
    with followed(logs, lambda name, text: output.append((name, text)), tail_lines=3):
        (tmp_path / "worker.log").write_text("hello\n")
        wait_until(lambda: ("worker", "hello") in output and len(output) == 4)
    assert [text for name, text in output if name == "api"] == ["line 47", "line 48", "line 49"]


def test_following_ends_with_its_reader(tmp_path: Path) -> None:
    def broken_pipe(name: str, text: str) -> None:
        raise BrokenPipeError

    (tmp_path / "api.log").write_text("one\n")
    with followed([tmp_path / "api.log"], broken_pipe, tail_lines=1) as ended:
        assert ended.wait(120)


def test_the_edge_gives_back_the_memory_of_bodies(tmp_path: Path) -> None:
    instance = load_instance(tmp_path / "one", 1)
    edge = next(one for one in processes(instance, instance.settings({})) if one.name == "edge")
    # Five times the bodies that it holds at once, and for good, without a limit.
    assert edge.environment["GOMEMLIMIT"] == "256MiB"
