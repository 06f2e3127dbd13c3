"""What `make run` shows of the logs: warnings and errors of every program, and nothing that each start says."""

from __future__ import annotations

import pytest

from supervise.shown_lines import ShownLines

HIDDEN = [
    "7113:C 25 Nov 2026 21:27:57.708 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo",
    "7113:M 25 Nov 2026 21:27:57.804 * The server is now ready to accept connections at /s/run/redis.sock",
    "7113:M 25 Nov 2026 21:27:57.803 # WARNING Memory overcommit must be enabled! Without it, ...",
    '2026/11/25 21:28:00.386\t\x1b[34mINFO\x1b[0m\thttp.log\tserver running\t{"name": "srv0"}',
    "2026/11/25 21:27:59.684\t\x1b[33mWARN\x1b[0m\tadmin\tadmin endpoint disabled",
    "[WARNING] Configuration allows spawning up to 160 Python threads, which seems quite high",
    "[INFO] Started worker-1",
    "INFO:     Started server process [7115]",
    "/x/celery/platforms.py:841: SecurityWarning: You're running the worker with superuser privileges: this is",
    " -------------- worker@vm v5.6.3 (recovery)",
    "  . workspaces.tasks.sweep_due",
    "",
    "2026-11-25 21:28:00,123 INFO workspaces.host.runtime [-] host vm is open",
    "2026-11-25 21:31:40.014+0000: 23932: warning : qemuDomainObjTaintMsg:6603 : Domain id=1 name='mvm' is tainted",
    '2026-11-26 01:13:35.795+0000: 6018: warning : virSecurityManagerNew:194 : Configured security driver "none"',
    '{"time": "2026-11-25T21:28:00.123+00:00", "level": "INFO", "logger": "x", "message": "ERROR: no"}',
]
SHOWN = [
    "7113:M 25 Nov 2026 21:27:57.803 # Out Of Memory allocating 4096 bytes!",
    "2026/11/25 21:28:00.386\t\x1b[31mERROR\x1b[0m\ttls.obtain\tcould not get certificate",
    "[ERROR] Unexpected exit from worker-1",
    "ERROR:    Exception in ASGI application",
    "[2026-11-25 21:28:00,123: CRITICAL/MainProcess] Unrecoverable error",
    "2026-11-25 21:28:00,123 WARNING workspaces.host.engine [op_1 ws_1] lost the claim",
    '{"time": "2026-11-25T21:28:00.123+00:00", "level": "ERROR", "logger": "x", "message": "no"}',
    "2026-11-25 21:31:40.014+0000: 23932: error : qemuMonitorIO:594 : internal error: End of file from qemu monitor",
    "Traceback (most recent call last):",
]


@pytest.mark.parametrize("line", HIDDEN)
def test_what_every_start_says_is_not_shown(line: str) -> None:
    assert not ShownLines().is_shown("api", line)


@pytest.mark.parametrize("line", SHOWN)
def test_warnings_and_errors_are_shown(line: str) -> None:
    assert ShownLines().is_shown("api", line)


def test_a_traceback_goes_with_its_line_and_other_processes_go_their_own_way() -> None:
    lines = ShownLines()
    assert lines.is_shown("worker", "2026-11-25 21:28:00,123 ERROR celery [-] failed")
    assert not lines.is_shown("beat", "  a banner")
    assert lines.is_shown("worker", "Traceback (most recent call last):")
    assert lines.is_shown("worker", '  File "x.py", line 1, in f')
    assert lines.is_shown("worker", "ValueError: no")
    assert not lines.is_shown("worker", "2026-11-25 21:28:01,123 INFO celery [-] next")
    assert not lines.is_shown("worker", "  more of it")
