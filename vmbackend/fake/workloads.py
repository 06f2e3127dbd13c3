"""The workloads of a fake guest: a file beside its disk, changed by the same commands as those of a real one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from vmbackend.errors import GuestCommandInvalid

# Next to a machine's disk: those that were changed while it runs, until its next start.
WORKLOADS_FILE = "workloads"
States = dict[str, dict[str, Any]]


def run_helper(file: Path, booted: list[str], words: str, stdin: bytes) -> bytes:
    """Carry out `workloads ...`. `booted`: the names that the machine started with."""
    _, command, *names = words.split(" ")
    states = _read(file, booted)
    if command == "list":
        return "".join(_line(name, state) for name, state in states.items()).encode()
    if command == "stats":
        return "".join(_usage(name, state) for name, state in states.items()).encode()
    (name,) = names
    if command == "put":
        if states.get(name, {}).get("records") != stdin.hex():
            states[name] = {**_started(), "records": stdin.hex()}
    elif command == "remove":
        states.pop(name, None)
    elif name not in states:
        raise GuestCommandInvalid("The machine refused: the machine has no such workload")
    elif command == "start":
        states[name] |= _started()
    else:
        states[name] |= {"state": "stopped", "pid": 0, "exit": 143}
    file.write_text(json.dumps(states))
    return b""


def _read(file: Path, booted: list[str]) -> States:
    if file.exists():
        found: States = json.loads(file.read_text())
        return found
    return {name: _started() for name in booted}


def _started() -> dict[str, Any]:
    return {"state": "running", "pid": 100, "exit": -1, "restarts": 0, "started": int(time.time())}


def _line(name: str, state: dict[str, Any]) -> str:
    return f"{name} {state['state']} {state['pid']} {state['exit']} {state['restarts']} {state['started']}\n"


def _usage(name: str, state: dict[str, Any]) -> str:
    """Return the usage of a workload that takes a quarter of a CPU and a MiB."""
    alive = int((time.time() - state["started"]) * 1000) if state["state"] == "running" else 0
    return f"{name} {state['pid']} {alive} {alive // 4} {(1 << 20) if state['pid'] else 0}\n"
