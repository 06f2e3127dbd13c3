"""Check the messages that tell a guest its new identity, and the answers that are accepted."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.load_message import template_message
from vmbackend.libvirt.message_exchange import _require_answer, exchange_message
from vmbackend.libvirt.record import MachineDir

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
MESSAGE = template_message(uuid="u", mac="02:00", disk_bytes=1, config=b"hostname=a\0")
GENERATION = MESSAGE.generation


def test_a_message_holds_the_configuration_as_it_is() -> None:
    encoded = template_message(uuid="u", mac="02:00", disk_bytes=64 << 20, config=b"hostname=a\0").encode(NOW)
    magic, version, kind, records, config = struct.unpack_from("<8s4I", encoded)
    assert (magic, version, kind) == (b"MVMLOAD\n", 1, 1)
    assert encoded[-config:] == b"hostname=a\0"
    found = dict(record.split(b"=", 1) for record in encoded[24 : 24 + records].split(b"\0")[:-1])
    assert found[b"disk_bytes"] == b"67108864"
    assert int(found[b"clock"]) == NOW
    assert len(found[b"entropy"]) == 128


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    answers, guest = os.pipe2(os.O_NONBLOCK)
    yield answers, guest
    os.close(answers)


ITEMS = " ".join(MESSAGE.kind.items)


def test_a_complete_answer_is_accepted(pipe: tuple[int, int]) -> None:
    now = time.time_ns()
    os.write(pipe[1], f"loaded {GENERATION} {ITEMS} {now}\n".encode())
    assert not _require_answer(pipe[0], MESSAGE, now, 20.0)
    os.close(pipe[1])


def test_a_slow_answer_is_accepted_with_a_clock_that_is_to_be_set(pipe: tuple[int, int]) -> None:
    now = time.time_ns()
    os.write(pipe[1], f"loaded {GENERATION} {ITEMS} {now - 2 * SECOND}\n".encode())
    assert _require_answer(pipe[0], MESSAGE, now - 3 * SECOND, 20.0)
    os.close(pipe[1])


@pytest.mark.parametrize(
    "line",
    [
        f"loaded {GENERATION[::-1]} {ITEMS} {{now}}",
        f"loaded {GENERATION} {ITEMS}",
        f"loaded {GENERATION} {ITEMS.replace('disk ', '')} {{now}}",
        f"loaded {GENERATION} {ITEMS} {{past}}",
        f"loaded {GENERATION} {ITEMS} {{future}}",
        f"loaded {GENERATION} {ITEMS} -1",
        f"loaded {GENERATION} {ITEMS} {'9' * 400}",
        "failed entropy Operation not permitted",
        "",
        "ready",
    ],
    # The generation is drawn by each process.
    ids=["another", "no time", "no disk", "past", "future", "negative", "long", "failed", "empty", "ready"],
)
def test_any_other_answer_is_refused(pipe: tuple[int, int], line: str) -> None:
    now = time.time_ns()
    text = line.format(now=now, past=now - 700_000_000, future=now + 1_500_000_000)
    os.write(pipe[1], text.encode() + b"\n")
    with pytest.raises(GuestUnreachable):
        _require_answer(pipe[0], MESSAGE, now, 20.0)
    os.close(pipe[1])


@pytest.mark.parametrize("sent", [b"", b"x" * 60000, None], ids=["silence", "a line without an end", "an end"])
def test_no_answer_ends_by_the_deadline(pipe: tuple[int, int], sent: bytes | None) -> None:
    os.write(pipe[1], sent or b"")
    if sent is None:
        os.close(pipe[1])
    with pytest.raises(GuestUnreachable):
        _require_answer(pipe[0], MESSAGE, NOW, 0.2)
    if sent is not None:
        os.close(pipe[1])


class HungDomain:
    """A paused domain whose process answers nothing until it is ended."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def name(self) -> str:
        return "hung"

    def state(self) -> list[int]:
        return [libvirt.VIR_DOMAIN_PAUSED, 0]

    def resume(self) -> None:
        assert self._ended.wait(30), "nobody has ended the process"
        raise libvirt.libvirtError("domain is not running")

    def isActive(self) -> bool:
        return not self._ended.is_set()

    def destroy(self) -> None:
        self._ended.set()

    def hasManagedSaveImage(self) -> bool:
        return False


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    files, hung = MachineDir(tmp_path, "m1"), HungDomain()
    files.path.mkdir()
    ends = []
    for way in ("in", "out"):
        path = files.requests_pipe.with_suffix(f".{way}")
        os.mkfifo(path)
        ends.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    try:
        with pytest.raises(GuestUnreachable):
            exchange_message(hung, files, MESSAGE, 0.1)
    finally:
        for end in ends:
            os.close(end)
    assert not hung.isActive()
