"""What a guest needs before traffic may enter after a sleep or a pause: the right time and new randomness."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt import agent

_SECONDS = 15.0  # all of it; a guest that was just loaded answers in a tenth of a second
_CLOCK_ERROR_NS = 200_000_000
_CLOCK_TRIES = 3
_ENTROPY_BYTES = 256
_FIRST_LOOK_SECONDS = 0.005
_LOOK_SECONDS = 0.01
_AGENT_RETRY_SECONDS = 0.005

Answer = TypeVar("Answer")


def freshen(target: Any) -> None:
    """Step the clock and reseed the pool. Raises GuestUnreachable, InvalidMachineState."""
    deadline = time.monotonic() + _SECONDS
    process = _patiently(lambda: _start_reseed(target, deadline), deadline)
    _await_reseed(target, process, deadline)
    _correct_clock(target, deadline)


def _patiently(call: Callable[[], Answer], deadline: float) -> Answer:
    """Right after a wake the hypervisor says that the agent is not there, until the guest has said that it is."""
    while True:
        try:
            return call()
        except GuestUnreachable:
            if time.monotonic() + _AGENT_RETRY_SECONDS >= deadline:
                raise
            time.sleep(_AGENT_RETRY_SECONDS)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise GuestUnreachable("The machine's agent does not answer in time.")
    return left


def _start_reseed(target: Any, deadline: float) -> int:
    answer = agent.ask(
        target,
        "guest-exec",
        _left(deadline),
        **{
            "path": "/run/kit/bin/guest",
            "arg": ["reseed", str(time.time_ns())],
            "input-data": base64.b64encode(os.urandom(_ENTROPY_BYTES)).decode(),
        },
    )
    if not isinstance(answer, dict) or not isinstance(answer.get("pid"), int):
        raise GuestUnreachable("The machine's agent answered nonsense.")
    return int(answer["pid"])


def _await_reseed(target: Any, process: int, deadline: float) -> None:
    pause = _FIRST_LOOK_SECONDS
    while True:
        answer = agent.ask(target, "guest-exec-status", _left(deadline), pid=process)
        if not isinstance(answer, dict):
            raise GuestUnreachable("The machine's agent answered nonsense.")
        if answer.get("exited"):
            break
        time.sleep(pause)
        pause = _LOOK_SECONDS
    if answer.get("exitcode") != 0:
        raise GuestUnreachable("The machine could not renew its random pool.")


def _correct_clock(target: Any, deadline: float) -> None:
    """The command set it, late by the time that a guest just loaded takes to start a process. By what it says now."""
    lead = 0
    for _ in range(_CLOCK_TRIES):
        asked = time.time_ns()
        told = agent.ask(target, "guest-get-time", _left(deadline))
        answered = time.time_ns()
        if not isinstance(told, int):
            raise GuestUnreachable("The machine's agent answered nonsense.")
        if asked - _CLOCK_ERROR_NS <= told <= answered + _CLOCK_ERROR_NS:
            return
        lead += (asked + answered) // 2 - told
        agent.ask(target, "guest-set-time", _left(deadline), time=time.time_ns() + lead)
    raise GuestUnreachable("The machine's clock could not be set.")
