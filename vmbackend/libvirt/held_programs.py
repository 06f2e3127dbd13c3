"""Freezing of a guest's programs while its memory is saved: a copy that is loaded from it runs none before its renewal.

A mark in the machine's folder says that programs may be frozen: the vmhost after a dead one lets them go on at once.
Without it they go on when the guest has waited some seconds for its host (`guest/src/freeze.c`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.requests_port import await_answer, discard_answers, open_requests_port, send_request

log = logging.getLogger(__name__)

# The guest gives up after 5 s, as when a program waits for its disk without end.
_SECONDS = 8.0
_NO_ANSWER = "The machine does not stop its programs for the snapshot."
_RAN = "The machine's programs could not be kept still for the snapshot."


def freeze_programs(files: MachineDir, let_run: Callable[[], object] = lambda: None) -> None:
    """Freeze a machine's programs. `let_run`: called with the request before the guest, for one whose CPUs stand.

    Raise GuestUnreachable, and the errors of `let_run`: the programs go on then, or in some seconds. Frozen ones stay
    so in a paused machine until its clock is set.
    """
    with suppress(OSError):  # a full disk: the guest's own end of waiting is left
        files.held.touch(0o600)
    _request(files, "freeze", b"frozen", _NO_ANSWER, let_run)


def thaw_programs(files: MachineDir) -> None:
    """Let frozen programs go on. Raise GuestUnreachable unless all of them stood since they were frozen."""
    try:
        _request(files, "thaw", b"thawed", _RAN, lambda: None)
    finally:
        forget_held(files)


def thaw_abandoned(files: MachineDir, *, runs: bool) -> None:
    """Let programs go on that a dead process has frozen, if the machine `runs`. In others they wait for their clock."""
    if runs and files.held.exists():
        log.warning("machine %s: its programs may be frozen for memory that nobody saves any more", files.id)
        with suppress(GuestUnreachable):
            thaw_programs(files)
    forget_held(files)


def forget_held(files: MachineDir) -> None:
    """Note that this process does not hold the machine's programs any more."""
    with suppress(OSError):
        files.held.unlink(missing_ok=True)


def _request(files: MachineDir, word: str, done: bytes, failure: str, let_run: Callable[[], object]) -> None:
    with open_requests_port(files, failure) as (requests, answers):
        discard_answers(answers)
        number = time.time_ns()
        send_request(requests, f"{word} {number}\n".encode(), failure)
        let_run()
        words = await_answer(answers, number, time.monotonic() + _SECONDS, failure)
    if words[0] != done:
        log.warning("machine %s: %r", files.id, b" ".join(words)[:200])
        raise GuestUnreachable(failure)
