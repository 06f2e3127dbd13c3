"""Sources that were taken over: what they send changes nothing outside the one folder, and has its limits there."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.vmbackend.transfer.hosts import (
    HERE,
    MIB,
    PLENTY,
    Hosts,
    children,
    command_lines,
    random_file,
    sparse_file,
    until,
)
from vmbackend.errors import BackendError, BackendUnavailable, DeadlineExceeded, TransferRefused
from vmbackend.tool_confinement import ToolConfinement
from vmbackend.transfer import client
from vmbackend.transfer.client import TransferSource
from vmbackend.transfer.rsync import SENDER

pytestmark = pytest.mark.host
RECEIVING = b"--no-links"  # in the command of rsync's receiving end
Answer = Callable[[Any], Awaitable[None]]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """The server of the source does not run."""
    return Hosts(tmp_path)


@contextmanager
def answering(hosts: Hosts, answer: Answer) -> Iterator[TransferSource]:
    """A source that has the right key, and answers as it likes."""
    loop, port = asyncio.new_event_loop(), []
    ready = threading.Event()

    async def handle(process: Any) -> None:
        with suppress(asyncssh.Error, OSError):
            await answer(process)
        with suppress(OSError):
            process.exit(0)

    async def serve() -> None:
        server = await asyncssh.listen(
            HERE, 0, server_host_keys=[str(hosts.source_key)], process_factory=handle, encoding=None,
            authorized_client_keys=asyncssh.import_authorized_keys(hosts.target_line), line_editor=False,
        )  # fmt: skip
        port.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield TransferSource(HERE, port[0], hosts.source_line)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def sending(*options: str, folder: Path) -> Answer:
    """Answer with a sender of other options, as root and not confined."""

    async def answer(process: Any) -> None:
        command = [*SENDER[:3], *(options or SENDER[3:-1]), f"{folder}/"]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await process.redirect(stdin=child.stdin, stdout=child.stdout)
            await child.wait()
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    return answer


def state_of(folder: Path) -> list[tuple[str, int, float]]:
    return sorted((str(path), path.lstat().st_mode, path.lstat().st_mtime) for path in folder.rglob("*"))


OPTIONS = ("--timeout=120", "--compress-level=1", "--compress-choice=zstd", "--inplace", ".")


@pytest.mark.parametrize(
    "letters", ["-ltrSe.LsfxCIvu", "-DltrSe.LsfxCIvu", "-RtrSe.LsfxCIvu", "-logDtprRSe.LsfxCIvu", "-HltrSe.LsfxCIvu"]
)
def test_links_devices_and_paths_change_nothing_outside(hosts: Hosts, tmp_path: Path, letters: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    random_file(outside / "kept", 1000)
    (hosts.sent / "a").symlink_to(outside)
    (hosts.sent / "b").symlink_to(outside / "kept")
    os.mkfifo(hosts.sent / "pipe")
    os.mknod(hosts.sent / "null", 0o666 | 0o020000, os.makedev(1, 3))
    (hosts.sent / "folder").mkdir()
    random_file(hosts.sent / "folder/file", 1000)
    os.link(hosts.sent / "folder/file", hosts.sent / "same")
    before = state_of(outside)
    with answering(hosts, sending(letters, *OPTIONS, folder=hosts.sent)) as source, suppress(BackendError):
        hosts.fetch(source=source, deadline=time.monotonic() + 5)
    assert state_of(outside) == before
    assert all(path.is_file() or path.is_dir() for path in hosts.into.rglob("*"))
    assert not any(path.is_symlink() for path in hosts.into.rglob("*"))


def test_a_longer_file_than_expected_is_refused(hosts: Hosts) -> None:
    random_file(hosts.sent / "disk", 8 * MIB)
    with answering(hosts, sending(folder=hosts.sent)) as source, pytest.raises(TransferRefused, match="longer"):
        hosts.fetch(source=source, max_bytes=PLENTY, max_file_bytes=3 * MIB)
    assert sum(path.stat().st_size for path in hosts.into.iterdir()) <= 3 * MIB


def test_a_file_of_holes_is_no_longer_than_expected_either(hosts: Hosts) -> None:
    sparse_file(hosts.sent / "disk", 300 * MIB)
    with answering(hosts, sending(folder=hosts.sent)) as source, pytest.raises(TransferRefused, match="longer"):
        hosts.fetch(source=source, max_bytes=PLENTY, max_file_bytes=100 * MIB)


def test_more_bytes_than_expected_are_refused(hosts: Hosts) -> None:
    """Bytes that compress well: a few of the network are many of the disk."""
    for number in range(400):
        (hosts.sent / f"file-{number}").write_bytes(b"x" * MIB)
    with answering(hosts, sending(folder=hosts.sent)) as source, pytest.raises(TransferRefused, match="more than"):
        hosts.fetch(source=source, max_bytes=20 * MIB)
    assert not children(RECEIVING)
    assert sum(path.stat().st_blocks * 512 for path in hosts.into.iterdir()) < 400 * MIB


@pytest.mark.parametrize("shape", ["many", "deep"])
def test_more_files_than_expected_are_refused(hosts: Hosts, shape: str) -> None:
    if shape == "many":
        for number in range(3000):
            (hosts.sent / str(number)).touch()
    else:
        (hosts.sent / "/".join("d" * 20)).mkdir(parents=True)
    with answering(hosts, sending(folder=hosts.sent)) as source, pytest.raises(TransferRefused, match="too many"):
        hosts.fetch(source=source)


async def send_noise(process: Any) -> None:
    while not process.is_closing():
        process.stdout.write(os.urandom(10_000))
        await process.stdout.drain()
        await asyncio.sleep(0)


async def send_zeros(process: Any) -> None:
    process.stdout.write(bytes([31, 0, 0, 0]))
    while not process.is_closing():
        process.stdout.write(bytes(10_000))
        await process.stdout.drain()
        await asyncio.sleep(0)


async def send_nothing(process: Any) -> None:
    await asyncio.sleep(600)


async def send_pieces_of_one_byte(process: Any) -> None:
    process.stdout.channel._send_pktsize = 1
    await send_zeros(process)


async def end_at_once(process: Any) -> None:
    """Answer nothing."""


@pytest.mark.parametrize("answer", [send_noise, send_zeros, send_nothing, send_pieces_of_one_byte, end_at_once])
def test_what_is_no_rsync_ends_with_an_error(hosts: Hosts, answer: Answer) -> None:
    with answering(hosts, answer) as source, pytest.raises((BackendUnavailable, DeadlineExceeded, TransferRefused)):
        hosts.fetch(source=source, deadline=time.monotonic() + 5, max_bytes=MIB)
    assert not children(RECEIVING)
    assert list(hosts.into.iterdir()) == []


def test_a_silent_source_is_left(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_SECONDS", 1.0)
    with answering(hosts, send_nothing) as source, pytest.raises(BackendUnavailable, match="nothing any more"):
        hosts.fetch(source=source)


SCRIPT = """
touch /outside /folder/../outside "{outside}/x" /tmp/x; rm -rf "{outside}" /usr/bin/true
ln -s "{outside}" /folder/link; ln /usr/bin/true /folder/hard; mknod /folder/null c 1 3; chmod 4777 /folder
(echo > /dev/tcp/127.0.0.1/22) 2>/tmp/x; ip link set lo up
setsid sleep 500 & sleep 0.3; touch /folder/file; exit 0
"""


def test_a_receiver_that_was_taken_over_reaches_its_folder_alone(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    random_file(outside / "kept", 1000)
    script = SCRIPT.format(outside=outside)
    confinement = ToolConfinement(writable=((hosts.into, "/folder"),))
    monkeypatch.setattr(client, "receiving_end", lambda into: (("bash", "-c", script), confinement))
    before = state_of(outside)
    with answering(hosts, end_at_once) as source, pytest.raises(TransferRefused, match="neither a file nor a folder"):
        hosts.fetch(source=source)
    assert state_of(outside) == before
    assert Path("/usr/bin/true").exists()
    assert not Path("/tmp/x").exists()
    until(lambda: not any(b"sleep\x00500" in cmdline for cmdline in command_lines()))
