"""Which lines of the logs `make run` shows: warnings and errors. The files and `make logs` have all of them.

A program marks its lines in its own way. A line without a mark (a traceback, a banner) goes with the line before it; a
traceback that no line announces is how a process dies.
"""

from __future__ import annotations

import re

# By the mark of a line: what is one of a warning or worse.
_MARKS = (
    # The platform: `2026-11-25 21:27:57,708 WARNING name [ids] text`, or an object with PLATFORM_LOG_FORMAT=json.
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) "),
    re.compile(r'\{"time": "[^"]*", "level": "(?P<level>[A-Z]+)"'),
    # Celery before it has its logging, granian, uvicorn.
    re.compile(r"\[[\d :,-]+: (?P<level>[A-Z]+)/"),
    re.compile(r"\[(?P<level>[A-Z]+)\] "),
    re.compile(r"(?P<level>[A-Z]+): "),
    # libvirt.
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+\d{4}: \d+: (?P<level>\w+) : "),
    # PostgreSQL.
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] (?P<level>[A-Z]+): "),
    # Caddy, in colours; Redis, whose warnings are marked by #.
    re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+\t(?:\x1b\[\d+m)?(?P<level>[A-Z]+)"),
    re.compile(r"\d+:[XCSM] \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d+ (?P<level>[.*#-]) "),
)
_WARNINGS = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "PANIC", "#"})
_TRACEBACK = "Traceback (most recent call last):"
# Lines of each start, whatever is configured.
_USUAL = (
    # granian, of PLATFORM_API_THREADS.
    "Configuration allows spawning up to",
    # Caddy, of what we write for it.
    *("Caddyfile input is not formatted", "admin endpoint disabled"),
    *("HTTP/2 skipped because it requires TLS", "HTTP/3 skipped because it requires TLS"),
    # libvirt, of each machine that a root process starts with options of its own.
    "qemuDomainObjTaintMsg",
    # libvirt, of the setting that leaves labels to the users that machines have of their own.
    'Configured security driver "none"',
    # PostgreSQL, of its own start and end; and what processes of the platform handle, and log if it matters.
    *("the database system is starting up", "the database system is shutting down", "due to administrator command"),
    *("duplicate key value violates", "due to lock timeout", "deadlock detected", "violates foreign key constraint"),
    # Redis, of its own start. Nothing is saved here, so memory overcommit does not matter to it.
    *("Redis is starting", "Redis version=", "Configuration loaded", "Server initialized", "Memory overcommit must be"),
    *("User requested shutdown", "Received SIGTERM", "Redis is now ready to exit", "Removing the unix socket file"),
)


class ShownLines:
    """The choice of shown lines, line by line, for each process on its own."""

    def __init__(self) -> None:
        self._is_shown: dict[str, bool] = {}

    def is_shown(self, process: str, line: str) -> bool:
        """Return whether the line is a warning or an error, or belongs to one."""
        level = _level_of(line)
        if level is not None:
            self._is_shown[process] = level in _WARNINGS and not any(text in line for text in _USUAL)
        elif line.startswith(_TRACEBACK):
            self._is_shown[process] = True
        return self._is_shown.get(process, False)


def _level_of(line: str) -> str | None:
    for mark in _MARKS:
        if found := mark.match(line):
            return found["level"].upper()
    return None
