"""`make run` with every process of the platform; machines are the fake driver's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.database import private_url
from supervise.instance import ROOT
from tests.collector import Collector
from tests.commands.test_supervise import wait_until
from tests.free_ports import free_port

START_SECONDS = 240


class Run:
    """A `make run`, and what it has printed."""

    def __init__(self, state: Path) -> None:
        self.state = state
        known = {key: value for key, value in os.environ.items() if not key.startswith("PLATFORM_")}
        settings = {"PLATFORM_VM_BACKEND": "fake", "PLATFORM_DISK_RESERVE_MB": "0", "PLATFORM_LOG_FORMAT": "json"}
        self.collector = Collector()
        settings |= {"PLATFORM_TRACES_ENDPOINT": self.collector.url, "OTEL_BSP_SCHEDULE_DELAY": "500"}
        places = {"STATE": str(state), "PORT": str(free_port()), "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "supervise", "run"],
            cwd=ROOT,
            env=known | settings | places,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self._reader.join(10)
        self.collector.close()

    def heartbeats(self) -> str:
        """The time of the host's last heartbeat; there is one every five seconds."""
        with psycopg.connect(private_url(self.state)) as connection:
            row = connection.execute("SELECT last_seen_at FROM vmbackend_host").fetchone()
        assert row is not None
        return str(row[0])


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    # Short: socket paths have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mvm-", dir="/tmp"))
    made = Run(folder / "s")
    try:
        wait_until(lambda: made.process.poll() is not None or '"second"' in "".join(made.lines), START_SECONDS)
        assert made.process.poll() is None, "\n".join(made.lines)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_addresses_are_the_last_that_is_printed(run: Run) -> None:
    # In that time beat sends a task every second.
    for _ in range(2):
        seen = run.heartbeats()
        wait_until(lambda seen=seen: run.heartbeats() != seen, START_SECONDS)
    shown = [line for line in run.lines if line]
    assert '"second"' in shown[-1], "\n".join(shown[-20:])
    assert not [line for line in shown if line.startswith("beat")]


def test_of_the_logs_only_warnings_are_shown(run: Run) -> None:
    of_logs = [line for line in run.lines if re.match(r"\w+ +\|", line) and not line.startswith("platform")]
    assert not [line for line in of_logs if "INFO" in line]
    # The processes have said dozens of lines by now; a start may warn, but not more than this.
    assert len(of_logs) < 10, "\n".join(of_logs)
    assert sum(len(path.read_text().splitlines()) for path in (run.state / "log").glob("*.log")) > 20


def test_what_an_instance_writes_is_its_owners_alone(run: Run) -> None:
    """Sockets apart, which are in a folder of the owner's."""
    passed_through = {run.state, *(run.state / name for name in ("machines", "libvirt", "cache", "postgres"))}
    made = {path: path.lstat().st_mode for path in (run.state, *run.state.rglob("*"))}
    open_to_others = {path for path, mode in made.items() if stat.S_ISREG(mode) | stat.S_ISDIR(mode) and mode & 0o077}
    assert open_to_others <= passed_through
    assert (run.state / "postgres" / "data" / "PG_VERSION") in made


def test_one_trace_leads_from_the_api_to_the_steps_in_vmhost(run: Run) -> None:
    """Of the first workspace's creation."""
    collector = run.collector
    wait_until(lambda: "operation create" in [span.name for span in collector.spans], START_SECONDS)
    operation = collector.named("operation create")
    trace = {span.name: span for span in collector.spans if span.trace_id == operation.trace_id}
    assert {"POST /workspace", "task workspaces.tasks.run_operation", "step wait_ready"} <= set(trace)
    roles = {name: collector.instances[trace[name].span_id].rpartition("/")[2] for name in trace}
    assert (roles["POST /workspace"], roles["step wait_ready"]) == ("api", "vmhost")


# Programs with a form of their own.
OTHERS = {"redis.log", "postgres.log", "edge.log"}


def entries(run: Run, name: str) -> list[dict[str, Any]]:
    """The lines of a log. Fails where one is no object."""
    found = [json.loads(line) for line in (run.state / "log" / name).read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in found)
    return found


def test_every_line_of_the_platforms_logs_is_an_object_with_json(run: Run) -> None:
    names = {path.name for path in (run.state / "log").glob("*.log")}
    assert {"api.log", "streams.log", "vmhost.log", "worker.log", "beat.log"} <= names
    found = {name: {entry["logger"] for entry in entries(run, name)} for name in names - OTHERS}
    assert "_granian" in found["api.log"]
    assert "uvicorn.error" in found["streams.log"]


def test_one_search_finds_what_the_api_and_vmhost_wrote_about_a_request(run: Run) -> None:
    """Of the first workspace's creation."""
    (asked,) = (entry for entry in entries(run, "api.log") if entry["message"].startswith("create of "))
    ids = {name: asked[name] for name in ("request_id", "operation_id", "workspace_id")}
    done = [entry["message"] for entry in entries(run, "vmhost.log") if ids.items() <= entry.items()]
    assert [message for message in done if message.startswith(f"{ids['workspace_id']} started")], done
