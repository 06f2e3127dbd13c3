"""Log sources of a workspace, and their places."""

from __future__ import annotations

from dataclasses import dataclass

from common.errors import NotFound
from workspaces.logs.lines import LogFormat
from workspaces.models import Workspace

BOOT, CMD = "boot", "cmd"
FOLDER = "/var/log/workspace"
# How many older files the guest's logger keeps; LOG.1 is the newest of them.
OLD_FILES = 3


@dataclass(frozen=True, slots=True)
class LogSource:
    """Source of a log. `path` is in the guest; None for the console, whose log is on the host.

    `chosen`: the path is its owner's choice, and the file has the output as it is.
    """

    name: str
    path: str | None = None
    chosen: bool = False

    @property
    def is_console(self) -> bool:
        return self.path is None

    @property
    def log_format(self) -> LogFormat:
        """Return how the lines of the log begin."""
        if self.is_console:
            return LogFormat.CONSOLE
        return LogFormat.PLAIN if self.chosen else LogFormat.RECORDS


def workload_sources(workspace: Workspace) -> dict[str, LogSource]:
    """Return the log sources of the saved workloads, by name."""
    return {
        item["name"]: LogSource(
            item["name"], item.get("log_path") or f"{FOLDER}/{item['name']}.log", bool(item.get("log_path"))
        )
        for item in workspace.workloads
    }


def sources_of(workspace: Workspace) -> dict[str, LogSource]:
    """Return the log sources by name. A workload named `boot` or `cmd` does not replace these two."""
    return {**workload_sources(workspace), BOOT: LogSource(BOOT), CMD: LogSource(CMD, f"{FOLDER}/{CMD}.log")}


def names_of(workspace: Workspace) -> str:
    """Return the names of the sources as a text for error messages."""
    rest = sorted(set(sources_of(workspace)) - {BOOT, CMD})
    return ", ".join([BOOT, CMD, *rest])


def find_source(workspace: Workspace, name: str) -> LogSource:
    """Return a log source by name. Raise NotFound with a message that names the sources. `boot` and `cmd` need no
    decryption of the workloads.
    """
    if name == BOOT:
        return LogSource(BOOT)
    if name == CMD:
        return LogSource(CMD, f"{FOLDER}/{CMD}.log")
    found = sources_of(workspace).get(name)
    if found is None:
        raise NotFound(f"There is no such log source; this workspace has: {names_of(workspace)}.")
    return found


def rotated_name(path: str, age: int) -> str:
    """Return the name of a log's file by age; 0 is the current one."""
    return f"{path}.{age}" if age else path
