"""The guest's agent (qemu-guest-agent) over libvirt: for control only, a few small messages.

A message must stay small: one beyond the port's buffer breaks the channel for good. Bulk goes by SSH. The guest owns
the agent, so what it answers is data, and that it answers at all is a courtesy with a deadline.
"""

from __future__ import annotations

import json
import math
import time
from typing import Any

import libvirt
import libvirt_qemu

from vmbackend.errors import GuestUnreachable, InvalidMachineState
from vmbackend.libvirt.domain import translate_errors

MAX_MESSAGE = 4096
_PAUSE = 0.05  # seconds between two pings
_SILENT = {libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_AGENT_UNSYNCED, libvirt.VIR_ERR_OPERATION_TIMEOUT}


def send_command(domain: Any, command: str, timeout: float, **arguments: object) -> object:
    """One command and its answer. Raises GuestUnreachable (silent, or it refuses), InvalidMachineState (no process)."""
    message = json.dumps({"execute": command, **({"arguments": arguments} if arguments else {})})
    if len(message) > MAX_MESSAGE:
        raise ValueError(f"{command}: too large for the agent's channel")
    try:
        # libvirt counts whole seconds; 0 would mean not to wait at all.
        answer = libvirt_qemu.qemuAgentCommand(domain, message, max(1, math.ceil(timeout)), 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _SILENT:
            raise GuestUnreachable("The machine's agent does not answer.") from error
        if not domain.isActive():
            raise InvalidMachineState("The machine does not run.") from error
        if error.get_error_code() == libvirt.VIR_ERR_INTERNAL_ERROR:
            raise GuestUnreachable("The machine's agent refused.") from error
        with translate_errors("ask the agent of"):
            raise
    try:
        return json.loads(answer).get("return")
    except (ValueError, AttributeError, RecursionError) as error:
        raise GuestUnreachable("The machine's agent answered nonsense.") from error


def responds(domain: Any, timeout: float) -> bool:
    """Whether a ping is answered within `timeout` seconds. The agent comes up after the machine has said `ready`, and
    libvirt refuses at once as long as it is not there.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return send_command(domain, "guest-ping", deadline - time.monotonic()) == {}
        except InvalidMachineState:
            return False
        except GuestUnreachable:
            if time.monotonic() + _PAUSE >= deadline:
                return False
            time.sleep(_PAUSE)
