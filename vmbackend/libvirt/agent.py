"""Client of the guest's agent (qemu-guest-agent) over libvirt: control only, small messages.

A message larger than the port's buffer breaks the channel for good; bulk data goes by SSH. The guest controls the
agent: its answers are untrusted, and it may not answer at all, so every call has a deadline.
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
# Characters of an answer that is decoded; libvirt passes on up to 10 MiB, whose decoding would hold up all threads.
MAX_ANSWER = 65536
_PAUSE = 0.05  # seconds between two pings
_SILENT = {libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_AGENT_UNSYNCED, libvirt.VIR_ERR_OPERATION_TIMEOUT}


def send_command(domain: Any, command: str, timeout: float, **arguments: object) -> object:
    """Send one command and return its result.

    Raise GuestUnreachable (no answer, or an error), InvalidMachineState (off).
    """
    message = json.dumps({"execute": command, **({"arguments": arguments} if arguments else {})})
    if len(message) > MAX_MESSAGE:
        raise ValueError(f"{command}: too large for the agent's channel")
    try:
        # libvirt takes whole seconds; 0 would mean not to wait.
        answer = libvirt_qemu.qemuAgentCommand(domain, message, max(1, math.ceil(timeout)), 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() in _SILENT:
            raise GuestUnreachable("The machine's agent does not answer.") from error
        if not domain.isActive():
            raise InvalidMachineState("The machine does not run.") from error
        if error.get_error_code() == libvirt.VIR_ERR_INTERNAL_ERROR:
            raise GuestUnreachable("The machine's agent reported an error.") from error
        with translate_errors("query the agent of"):
            raise
    if len(answer) > MAX_ANSWER:
        raise GuestUnreachable("The machine's agent sent an answer that is too long.")
    try:
        return json.loads(answer).get("return")
    except (ValueError, AttributeError, RecursionError) as error:
        raise GuestUnreachable("The machine's agent sent an invalid answer.") from error


def agent_responds(domain: Any, timeout: float) -> bool:
    """Return whether the agent answers a ping within `timeout` seconds.

    The agent comes up after the machine has reported `ready`; until then libvirt rejects the call at once.
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
