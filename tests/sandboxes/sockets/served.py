"""The streams process of these tests: the real application and server; a guest is a `guest hold` of this host."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from config.asgi import application
from config.serve_asgi import streams_server
from tests.vmbackend.hold_factory import QUIET, LocalHold, PipeTransport
from vmbackend.guest.hold import HoldClient, HoldSettings
from vmbackend.guest.session import GuestAddress
from workspaces.data_plane.sockets import machine

__all__ = ["application"]

HELPER = "HOLD_HELPER"
FOLDER = "HOLD_FOLDER"


def open_hold(address: GuestAddress, settings: HoldSettings) -> HoldClient:
    """Of the process that the test has started in a folder with the machine's name."""
    hold = LocalHold.__new__(LocalHold)
    hold.helper, hold.folder = Path(os.environ[HELPER]), Path(os.environ[FOLDER]) / address.machine_id
    hold.options, hold.attached = ("262144", "10000"), []

    async def open_transport() -> PipeTransport:
        return await hold.open_transport()

    return HoldClient(open_transport, replace(settings, timeout=QUIET.timeout))


if __name__ == "__main__":
    machine.open_hold = open_hold
    machine.USE_SECONDS = 4.0  # tests wait for it to pass
    streams_server().run()
