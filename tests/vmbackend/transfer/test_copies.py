"""Folders that a host fetches from another one: what arrives, and what a second attempt sends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmbackend.transfer.hosts import (
    MIB,
    OFFER,
    Hosts,
    children,
    command_lines,
    random_file,
    running_hosts,
    sparse_file,
    until,
)
from vmbackend.errors import BackendUnavailable, DeadlineExceeded
from vmbackend.transfer import client
from vmbackend.transfer.server import TransferServer

pytestmark = pytest.mark.host


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with running_hosts(tmp_path) as made:
        yield made


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all pieces that came over the network."""
    pieces: list[int] = []
    read = client._Session.read

    async def counted(session: client._Session) -> bytes:
        data = await read(session)
        pieces.append(len(data))
        return data

    monkeypatch.setattr(client._Session, "read", counted)
    return pieces


def test_files_arrive_with_their_bytes_their_holes_and_their_times(hosts: Hosts, received: list[int]) -> None:
    sparse_file(hosts.sent / "disk", 200 * MIB)
    random_file(hosts.sent / "memory", 3 * MIB)
    (hosts.sent / "parts").mkdir()
    random_file(hosts.sent / "parts/one", 1000)
    os.utime(hosts.sent / "memory", (1_700_000_000, 1_700_000_000))
    os.chown(hosts.sent / "disk", 64_055, 64_055)  # a machine's, as the files of layers are
    (hosts.sent / "disk").chmod(0o600)
    hosts.offer()
    taken: list[int] = []
    hosts.fetch(on_progress=taken.append, max_file_bytes=200 * MIB)
    for name in ("disk", "memory", "parts/one"):
        assert (hosts.into / name).read_bytes() == (hosts.sent / name).read_bytes()
        status = (hosts.into / name).stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode), status.st_nlink) == (os.getuid(), 0o600, 1)
        assert status.st_mtime == (hosts.sent / name).stat().st_mtime
    assert (hosts.into / "disk").stat().st_blocks * 512 < MIB
    assert sum(received) < 4 * MIB
    assert stat.S_IMODE(hosts.into.stat().st_mode) == 0o700
    assert taken == sorted(taken)
    assert 3 * MIB <= taken[-1] < 5 * MIB
    assert not children()


def test_links_and_pipes_of_the_folder_stay_where_they_are(hosts: Hosts) -> None:
    random_file(hosts.sent / "file", 1000)
    os.link(hosts.sent / "file", hosts.sent / "same")
    (hosts.sent / "link").symlink_to("/etc/passwd")
    os.mkfifo(hosts.sent / "pipe")
    hosts.offer()
    hosts.fetch()
    assert sorted(path.name for path in hosts.into.iterdir()) == ["file", "same"]
    assert {path.stat().st_nlink for path in hosts.into.iterdir()} == {1}


def test_an_empty_folder_arrives_empty(hosts: Hosts) -> None:
    hosts.offer()
    hosts.fetch()
    assert list(hosts.into.iterdir()) == []


def break_in_the_middle(hosts: Hosts, at: int) -> None:
    """Fetch, and withdraw the offer once so much has come."""

    def look(taken: int) -> None:
        if taken > at:
            hosts.server.withdraw(OFFER)

    hosts.offer()
    with pytest.raises(BackendUnavailable):
        hosts.fetch(on_progress=look, bytes_per_second=8 * MIB)


def test_after_a_break_only_the_rest_is_sent(hosts: Hosts, received: list[int]) -> None:
    whole = random_file(hosts.sent / "disk", 12 * MIB)
    random_file(hosts.sent / "a small one", MIB)
    break_in_the_middle(hosts, 6 * MIB)
    there = sum(path.stat().st_size for path in hosts.into.iterdir())
    assert 6 * MIB < there < 13 * MIB
    received.clear()
    hosts.offer()
    hosts.fetch()
    assert (hosts.into / "disk").read_bytes() == whole
    assert sum(received) < 13 * MIB - there + MIB // 2


def test_what_was_damaged_between_two_attempts_is_sent_again(hosts: Hosts) -> None:
    """After a crash of the host the end of a file may be zeros."""
    whole = random_file(hosts.sent / "disk", 12 * MIB)
    break_in_the_middle(hosts, 6 * MIB)
    with (hosts.into / "disk").open("r+b") as file:
        file.seek(2 * MIB)
        file.write(bytes(MIB))
        file.truncate(12 * MIB)
    hosts.offer()
    hosts.fetch()
    assert (hosts.into / "disk").read_bytes() == whole


def test_what_is_complete_is_not_sent_again(hosts: Hosts, received: list[int]) -> None:
    random_file(hosts.sent / "disk", 5 * MIB)
    hosts.offer()
    hosts.fetch()
    received.clear()
    hosts.fetch()
    assert sum(received) < 10_000


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_rate_is_kept_by_either_side(hosts: Hosts, side: str) -> None:
    random_file(hosts.sent / "disk", 6 * MIB)

    def seconds(rate: int) -> float:
        hosts.server.withdraw(OFFER)
        hosts.offer(bytes_per_second=rate if side == "source" else 0)
        begun = time.monotonic()
        hosts.fetch(into=hosts.into.with_name(f"into-{rate}"), bytes_per_second=rate if side == "target" else 0)
        return time.monotonic() - begun

    assert seconds(MIB) > seconds(8 * MIB) + 3


@pytest.mark.parametrize("end", ["gives up", "deadline"])
def test_a_fetch_that_is_given_up_has_ended_when_it_returns(hosts: Hosts, end: str) -> None:
    random_file(hosts.sent / "disk", 12 * MIB)
    hosts.offer()
    asked: list[int] = []
    options = {"give_up": lambda: len(asked) > 10} if end == "gives up" else {"deadline": time.monotonic() + 1}
    with pytest.raises(DeadlineExceeded):
        hosts.fetch(bytes_per_second=MIB // 2, on_progress=asked.append, **options)
    before = (hosts.into / "disk").stat().st_size
    until(lambda: not children())
    assert (hosts.into / "disk").stat().st_size == before < 12 * MIB


def test_a_withdrawn_offer_ends_at_the_source_too(hosts: Hosts) -> None:
    random_file(hosts.sent / "disk", 12 * MIB)
    hosts.offer(bytes_per_second=MIB // 2)
    fetched = threading.Event()

    def fetch() -> None:
        with pytest.raises(BackendUnavailable):
            hosts.fetch()
        fetched.set()

    thread = threading.Thread(target=fetch)
    thread.start()
    until(lambda: len(children()) > 2)
    hosts.server.withdraw(OFFER)
    assert fetched.wait(30)
    thread.join()
    until(lambda: not children())


def test_the_end_of_the_server_ends_what_it_sends(hosts: Hosts) -> None:
    random_file(hosts.sent / "disk", 12 * MIB)
    hosts.offer(bytes_per_second=MIB // 2)
    threading.Timer(1, hosts.server.stop).start()
    with pytest.raises(BackendUnavailable):
        hosts.fetch()
    until(lambda: not children())
    with pytest.raises(BackendUnavailable, match="is not open"):
        hosts.offer()


def test_a_taken_port_is_said_and_the_process_goes_on(hosts: Hosts, caplog: pytest.LogCaptureFixture) -> None:
    second = TransferServer(hosts.server.address, hosts.server.port, hosts.source_key)
    second.start()
    with pytest.raises(BackendUnavailable, match=f"port {hosts.server.port} is not open"):
        second.offer(OFFER, hosts.sent, hosts.target_line)
    second.stop()
    assert [record.message for record in caplog.records if "no workspace moves from here" in record.message]
    hosts.offer()
    hosts.fetch()


KILLED = """
import sys
from pathlib import Path
from tests.vmbackend.transfer.hosts import MIB, random_file, running_hosts

with running_hosts(Path(sys.argv[1])) as hosts:
    random_file(hosts.sent / "disk", 12 * MIB)
    hosts.offer()
    hosts.fetch(bytes_per_second=MIB // 2)
"""


def test_a_process_that_is_killed_leaves_nothing_that_sends_or_receives(tmp_path: Path) -> None:
    place = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], env=os.environ | place) as process:
        until(lambda: (tmp_path / "into/disk").exists())
        process.kill()
    bound = f"{tmp_path}/into", f"{tmp_path}/sent"  # in the commands of both ends' confinement
    until(lambda: not any(folder.encode() in line for folder in bound for line in command_lines()))
