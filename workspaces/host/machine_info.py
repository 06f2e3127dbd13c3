"""The host's reply to a question about one machine: its state, definition and counters."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any

from common.times import from_epoch, iso
from vmbackend.driver import Driver, MachineState
from vmbackend.errors import BackendError, MachineNotFound

UP = (MachineState.RUNNING, MachineState.PAUSED)


def machine_info_reply(driver: Driver, workspace_id: str) -> bytes:
    """Return the reply of vmhost. An error of the backend is part of the reply, under `problem`."""
    return json.dumps(_described(driver, workspace_id), default=_plain).encode()


def _described(driver: Driver, workspace_id: str) -> dict[str, Any]:
    try:
        state = driver.state(workspace_id)
        return {
            "state": state.value,
            "machine": _machine(driver, workspace_id),
            "counters": _counters(driver, workspace_id) if state in UP else None,
        }
    except BackendError as exc:
        return {"problem": exc.message}


def _machine(driver: Driver, workspace_id: str) -> object:
    """Return the definition of the machine without the host's files."""
    try:
        definition = driver.definition(workspace_id)
    except MachineNotFound:
        return None
    return definition.get("machine", definition)


def _counters(driver: Driver, workspace_id: str) -> dict[str, Any] | None:
    sample = driver.samples([workspace_id]).get(workspace_id)
    if sample is None:
        return None
    counters = asdict(sample)
    del counters["generation"]
    return {**counters, "at": iso(from_epoch(sample.at))}


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return sorted(value) if isinstance(value, set | frozenset) else str(value)
