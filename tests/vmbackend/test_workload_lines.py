"""What a guest says of its workloads may be anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.workloads import WorkloadState, list_workloads, stop_workload


class Session:
    def __init__(self, output: bytes) -> None:
        self.output = output

    async def kit_helper(self, words: str, stdin: bytes, max_output: int = 4096) -> bytes:
        return self.output[:max_output]


def listed(output: bytes) -> list[WorkloadState]:
    session: Any = Session(output)
    return asyncio.run(list_workloads(session))


def test_states_are_read_and_sorted() -> None:
    output = b"web running 12 -1 3 1700000000\napp exited 0 137 0 0\n"
    assert listed(output) == [
        WorkloadState("app", "exited", None, 137, 0, None),
        WorkloadState("web", "running", 12, None, 3, 1_700_000_000.0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"web", b"web running 1 0 0", b"web running 1 0 0 0 0", b"../x running 1 0 0 0", b"web flying 1 0 0 0",
        b"web running -1 0 0 0", b"web running 99999999999 0 0 0", b"web running 1 1000 0 0", b"\xff running 1 0 0 0",
        b"web running 1 0 0 999999999999", "web running \u0661 0 0 0".encode(),
    ],
)  # fmt: skip
def test_other_lines_are_left_out(line: bytes) -> None:
    assert [each.name for each in listed(b"good running 1 -1 0 0\n" + line + b"\n")] == ["good"]


def test_endless_output_is_bounded() -> None:
    assert len(listed(b"".join(b"w%d running 1 -1 0 0\n" % number for number in range(100_000)))) == 64


def test_a_name_that_is_none_reaches_no_command_line() -> None:
    session: Any = Session(b"")
    for name in ("a b", "; reboot", "", "x" * 65, "cmd"):
        with pytest.raises(GuestCommandInvalid):
            asyncio.run(stop_workload(session, name))
