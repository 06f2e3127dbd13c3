"""A guest in plain QEMU that is told another identity, as the host tells it over the port of requests."""

from __future__ import annotations

import time

from tests.vmbackend import vm_harness as harness
from vmbackend.driver import Boot
from vmbackend.guest.bootconfig import GuestConfig, encode_config
from vmbackend.guest.load_message import LoadMessage


def config_for(machine: harness.Machine, boot: Boot, address: str = "10.0.2.15/24") -> bytes:
    """The configuration of `boot` for a machine with the keys of this one."""
    config = GuestConfig(
        boot=boot,
        address=address,
        gateway="10.0.2.2",
        dns=("10.0.2.3",),
        host_key=(machine.folder / "host_key").read_bytes(),
        authorized_key=machine.client_key.export_public_key().decode(),
    )
    return encode_config(config)


def tell(machine: harness.Machine, message: LoadMessage, cut: int | None = None) -> list[str]:
    """Send the message, or only the first `cut` bytes of it and a line that is answered; return the answer's words."""
    encoded = message.encode(time.time_ns())
    if cut is None:
        return machine.send_requests(encoded)[0].split()
    return machine.send_requests(encoded[:cut], answers=0)


def expected(message: LoadMessage) -> list[str]:
    return [word.decode() for word in message.expected_answer()]
