"""The message that gives a guest its identity, found on its requests port and read by `src/message.c`.

A head of fixed size, records that concern this moment alone, and the machine's boot configuration.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from vmbackend.guest.records import encode_record

_HEAD = struct.Struct("<8s4I")
_MAGIC = b"MVMLOAD\n"
_VERSION = 1
_ENTROPY_BYTES = 64

# The configuration of the guest that becomes a template: it waits for a message.
TEMPLATE_CONFIG = encode_record("template", "1")


class MessageKind(Enum):
    """A kind of guest that is told: its number in the head, the first word of its answer, and that answer's items."""

    BOOT = 1, "loaded", "entropy clock mac disk uuid configuration generation"
    ASSIGN = 2, "assigned", "unassigned entropy clock configuration names keys generation programs"
    RENEW = 3, "renewed", "freeze entropy clock configuration mac connections address names identity keys generation"

    def __init__(self, number: int, word: str, items: str) -> None:
        self.number = number
        self.word = word
        self.items = items.split()


@dataclass(frozen=True, slots=True)
class LoadMessage:
    """The identity of one machine. `config`: its boot configuration, as `bootconfig.encode_config` returns it.

    `facts`: the records of this kind alone.
    """

    kind: MessageKind
    config: bytes
    facts: Mapping[str, str] = field(default_factory=dict)
    generation: str = field(default_factory=lambda: str(uuid.uuid4()))

    def encode(self, now: int) -> bytes:
        """Return the message with new randomness. `now`: the time in ns since the epoch."""
        pairs = {
            "generation": self.generation,
            "entropy": os.urandom(_ENTROPY_BYTES).hex(),
            "clock": str(now),
            **self.facts,
        }
        records = b"".join(encode_record(key, value) for key, value in pairs.items())
        return _HEAD.pack(_MAGIC, _VERSION, self.kind.number, len(records), len(self.config)) + records + self.config

    def expected_answer(self) -> list[bytes]:
        """Return the words of the answer of a guest that has done all of it, without the last one, its clock in ns."""
        return [self.kind.word.encode(), self.generation.encode(), *(item.encode() for item in self.kind.items)]


def template_message(*, uuid: str, mac: str, disk_bytes: int, config: bytes) -> LoadMessage:
    """Return the message for a guest that was loaded from a boot template."""
    return LoadMessage(MessageKind.BOOT, config, {"uuid": uuid, "mac": mac, "disk_bytes": str(disk_bytes)})


def assign_message(config: bytes) -> LoadMessage:
    """Return the message for a guest that was booted as `Boot.unassigned`. Its address and host key stay."""
    return LoadMessage(MessageKind.ASSIGN, config)


def renew_message(*, uuid: str, mac: str, config: bytes, kept: bool) -> LoadMessage:
    """Return the message for a guest in which programs ran, and whose memory was loaded.

    `kept`: as the machine that it was; only boot id, generation, clock and randomness are new.
    """
    facts = {"uuid": uuid, "mac": mac, **({"kept": "1"} if kept else {})}
    return LoadMessage(MessageKind.RENEW, config, facts)
