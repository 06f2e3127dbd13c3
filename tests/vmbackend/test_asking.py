"""`guest run --ask`: a command's programs ask the host, and no others are answered."""

from __future__ import annotations

import asyncio
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.errors import GuestDiskFull, GuestUnreachable
from vmbackend.guest import asking, commands

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

QUESTION = "Password for 'https://h': "


class Asking:
    """A command of `guest run --ask`, whose host the test is."""

    def __init__(self, program: Path, folder: Path, script: str) -> None:
        options = ["--ask", str(folder), "--env", f"ASK={program.with_name('askpass')}", "--timeout", "100"]
        self.process = subprocess.Popen(
            [program, "run", *options, "--", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def question(self) -> tuple[int, bytes]:
        """Number and bytes of the next one."""
        assert self.process.stdout is not None
        size, number = struct.unpack(">II", self.process.stdout.read(8))
        return number, self.process.stdout.read(size - 4)

    def say(self, number: int, said: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack(">II", 4 + len(said), number) + said)
        self.process.stdin.flush()

    def end(self) -> tuple[int, bytes]:
        """Exit code and what the command said. Nothing but questions was on its standard output."""
        out, err = self.process.communicate(timeout=60)
        assert out == b""
        return self.process.returncode, err


@pytest.fixture
def start(hold_program: Path, short: Path) -> Iterator[Callable[[str], Asking]]:
    link = hold_program.with_name("askpass")
    if not link.is_symlink():
        link.symlink_to(hold_program.name)
    made: list[Asking] = []

    def start(script: str) -> Asking:
        made.append(Asking(hold_program, short, script))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        for stream in (each.process.stdout, each.process.stderr, each.process.stdin):
            assert stream is not None
            stream.close()
    assert list(short.iterdir()) == []


def test_a_program_gets_the_answer_of_the_host_and_nothing_stays(start: Callable[[str], Asking], short: Path) -> None:
    asking = start(f'echo said; "$ASK" "{QUESTION}"; stat -c %a "${{SSH_AUTH_SOCK%/*}}"; cat; exit 3')
    number, question = asking.question()
    assert question == b"\xf0" + QUESTION.encode()
    asking.say(number, b"\xf0the secret")
    assert asking.end() == (3, b"said\nthe secret\n700\n")
    assert list(short.iterdir()) == []


def test_a_refusal_is_a_failure_of_the_program_that_asked(start: Callable[[str], Asking]) -> None:
    asking = start('"$ASK" a || "$ASK" b || echo "none: $?"')
    for _ in range(2):
        asking.say(asking.question()[0], b"")
    assert asking.end() == (0, b"none: 1\n")


def test_answers_reach_the_programs_that_asked_in_any_order(start: Callable[[str], Asking]) -> None:
    asking = start('for i in 1 2 3; do (echo "$i=$("$ASK" $i)") & done; wait')
    asked = [asking.question() for _ in range(3)]
    asking.say(99, b"\xf0to none")
    for number, question in reversed(asked):
        asking.say(number, b"\xf0to " + question[1:])
    code, said = asking.end()
    assert (code, sorted(said.splitlines())) == (0, [b"1=to 1", b"2=to 2", b"3=to 3"])


def test_a_program_outside_of_the_command_is_not_heard(
    start: Callable[[str], Asking], short: Path, hold_program: Path
) -> None:
    asking = start('"$ASK" mine; echo done')
    number, _ = asking.question()
    (place,) = short.glob(".ask-*/s")
    stranger = [hold_program.with_name("askpass"), QUESTION]
    done = subprocess.run(stranger, env={"SSH_AUTH_SOCK": str(place)}, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    asking.say(number, b"\xf0x")
    assert asking.end() == (0, b"x\ndone\n")


def test_the_folder_of_a_killed_command_is_removed_by_the_next_one_and_that_of_a_live_one_is_not(
    start: Callable[[str], Asking], short: Path
) -> None:
    live, killed = start('"$ASK" live'), start('"$ASK" killed')
    number, _ = live.question()
    killed.question()
    killed.process.kill()
    killed.process.wait()
    other = short / ".ask-other"
    other.mkdir()
    assert len(list(short.glob(".ask-*/s"))) == 2
    last = start('"$ASK" last')
    asked, _ = last.question()
    assert len(list(short.glob(".ask-*/s"))) == 2, "those of the two that live"
    last.say(asked, b"\xf0x")
    assert last.end() == (0, b"x\n")
    live.say(number, b"\xf0to the live one")
    assert live.end() == (0, b"to the live one\n")
    other.rmdir()  # no command's
    assert list(short.iterdir()) == []


def test_a_file_system_without_room_for_the_folder_is_full(hold_program: Path) -> None:
    command = 'mount -t tmpfs -o nr_inodes=1 none /mnt && exec "$0" run --ask /mnt -- true'
    done = subprocess.run(["unshare", "-m", "sh", "-c", command, hold_program], capture_output=True, timeout=60)
    failure = commands.start_failure(done.returncode, done.stderr)
    assert failure is not None
    assert isinstance(commands.start_error(failure), GuestDiskFull)


@pytest.mark.parametrize("size", [0, 8193, 2**32 - 1])
def test_a_question_of_a_wrong_size_ends_the_one_who_asks_only(start: Callable[[str], Asking], size: int) -> None:
    client = f"""import os, socket, struct
peer = socket.socket(socket.AF_UNIX)
peer.connect(os.environ["SSH_AUTH_SOCK"])
peer.sendall(struct.pack(">I", {size}))
print(peer.recv(1))"""
    asking = start(f"python3 -c '{client}'; \"$ASK\" q")
    asking.say(asking.question()[0], b"\xf0x")
    code, said = asking.end()
    assert (code, said) == (0, b"b''\nx\n")


def test_a_host_that_is_gone_answers_nobody_and_ends_the_command(start: Callable[[str], Asking]) -> None:
    asking = start('"$ASK" q || echo none; exec sleep 1000')
    asking.question()
    assert asking.process.stdin is not None
    assert asking.process.stdout is not None
    assert asking.process.stderr is not None
    asking.process.stdin.close()
    assert asking.process.stderr.readline() == b"none\n"
    asking.process.stdout.close()
    assert asking.process.wait(timeout=60) == 137


def test_a_program_that_leaves_without_its_answer_makes_room(start: Callable[[str], Asking]) -> None:
    asking = start('for i in $(seq 20); do timeout 0.05 "$ASK" q; done; "$ASK" last')
    question = b""
    while question != b"\xf0last":
        number, question = asking.question()
    asking.say(number, b"\xf0x")
    assert asking.end()[1].endswith(b"x\n")


class _Ends:
    """Both ends of what the host reads and writes."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)
        self.written = b""

    async def read(self, _: int, /) -> bytes:
        return self.blocks.pop(0) if self.blocks else b""

    def write(self, data: bytes, /) -> None:
        self.written += data

    async def drain(self) -> None:
        return


async def echo(question: bytes) -> bytes:
    return question + b"!"


def run(ends: _Ends) -> bytes:

    asyncio.run(asking.answer_questions(ends, ends, echo))
    return ends.written


def test_questions_are_read_in_any_pieces() -> None:
    one, two = struct.pack(">II", 5, 7) + b"a", struct.pack(">II", 6, 8) + b"bc"
    expected = struct.pack(">II", 6, 7) + b"a!" + struct.pack(">II", 7, 8) + b"bc!"
    assert run(_Ends(one + two)) == expected
    assert run(_Ends(*(bytes([byte]) for byte in one + two))) == expected


@pytest.mark.parametrize("size", [0, 4, 4 + 8193, 2**32 - 1])
def test_a_guest_that_asks_what_is_no_question_loses_the_command(size: int) -> None:
    with pytest.raises(GuestUnreachable):
        run(_Ends(struct.pack(">I", size) + b"x" * 8))


def test_no_more_than_some_questions_are_looked_at() -> None:
    question = struct.pack(">II", 5, 7) + b"a"
    written = run(_Ends(question * 70))
    assert written.count(b"a!") == asking.MAX_QUESTIONS
    assert written.endswith(struct.pack(">II", 4, 7))


def test_a_guest_that_asks_for_ever_loses_the_command() -> None:
    question = struct.pack(">II", 5, 7) + b"a"
    with pytest.raises(GuestUnreachable):
        run(_Ends(question * (asking.MAX_REFUSED + 1)))
