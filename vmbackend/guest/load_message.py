"""The message that a machine loaded from a template finds on its requests port, read by `src/load.c`.

A head of fixed size, records that concern the load alone, and the machine's boot configuration.
"""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass, field

from vmbackend.guest.records import encode_record

_HEAD = struct.Struct("<8s4I")
_MAGIC = b"MVMLOAD\n"
_VERSION = 1
_KIND_BOOT = 1
_ENTROPY_BYTES = 64

# The configuration of the guest that becomes a template: it waits for a message.
TEMPLATE_CONFIG = encode_record("template", "1")


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """The identity of one machine. `config`: its boot configuration, as `bootconfig.encode_config` returns it."""

    uuid: str
    mac: str
    disk_bytes: int
    config: bytes
    generation: str = field(default_factory=lambda: str(uuid.uuid4()))

    def encode(self, now: int) -> bytes:
        """Return the message with new randomness. `now`: the time in ns since the epoch."""
        pairs = {
            "generation": self.generation,
            "entropy": os.urandom(_ENTROPY_BYTES).hex(),
            "uuid": self.uuid,
            "mac": self.mac,
            "disk_bytes": str(self.disk_bytes),
            "clock": str(now),
        }
        records = b"".join(encode_record(key, value) for key, value in pairs.items())
        return _HEAD.pack(_MAGIC, _VERSION, _KIND_BOOT, len(records), len(self.config)) + records + self.config
