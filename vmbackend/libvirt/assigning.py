"""Assignment of a machine that was booted as nobody's, in the guest."""

from __future__ import annotations

from typing import Any

from vmbackend.guest.load_message import assign_message
from vmbackend.libvirt.message_exchange import exchange_message
from vmbackend.libvirt.record import MachineDir

# A guest answers within 0.1 s of a quiet host; one that does not within this is started anew.
_ANSWER_SECONDS = 10.0


def assign_guest(target: Any, files: MachineDir) -> None:
    """Give a paused guest that was booted as `Boot.unassigned` the configuration in `files`; its CPUs run then.

    The guest starts its programs and reports `ready` after its answer: the caller has noted before that another start
    begins. Raise GuestUnreachable, BackendUnavailable: the caller ends the process, which is nobody's.
    """
    exchange_message(target, files, assign_message(files.config.read_bytes()), _ANSWER_SECONDS)
