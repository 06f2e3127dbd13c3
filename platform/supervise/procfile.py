"""`python -m supervise.procfile > Procfile`: the list of processes for readers and for other process managers."""

from __future__ import annotations

import sys
from ipaddress import IPv4Network
from pathlib import Path

from config.env import Env, variable
from supervise.instance import Instance
from supervise.processes import TOOLS, Process, processes

_STATE = "$STATE"
_HEADER = """\
# The processes of one instance with the default settings, in the order in which they start. Generated from
# platform/supervise/processes.py by `make procfile`; a test compares them. `make run` and `make up` start them under
# supervisord with restarts, stop times and logs. The settings (docs/operations.md) reach them as environment variables.
"""


def procfile() -> str:
    """Return the text of the Procfile."""
    instance = Instance("000000", Path(_STATE), Path(_STATE), 8000, IPv4Network("10.200.0.0/20"))
    settings = Env.from_environment({variable("short_state"): _STATE})
    return _HEADER + "".join(f"{process.name}: {_command(process)}\n" for process in processes(instance, settings))


def _command(process: Process) -> str:
    words = [word.removeprefix(f"{TOOLS}/") for word in process.command]
    return " ".join(f'"{word}"' if word in {"", "*"} else word for word in words)


if __name__ == "__main__":
    sys.stdout.write(procfile())
