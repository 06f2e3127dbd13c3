"""Who is let in by a source, and what a client that was let in can do there besides fetching the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import String

from tests.vmbackend.transfer.hosts import HERE, MIB, OFFER, Hosts, new_key, random_file, running_hosts, until
from vmbackend.errors import BackendUnavailable, TransferRefused
from vmbackend.transfer.client import TransferSource

pytestmark = pytest.mark.host


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with running_hosts(tmp_path) as made:
        random_file(made.sent / "file", 1000)
        yield made


@pytest.mark.parametrize("wrong", ["key", "offer", "withdrawn", "another's", "replaced"])
def test_nobody_but_the_host_to_which_it_is_offered_is_let_in(hosts: Hosts, tmp_path: Path, wrong: str) -> None:
    other_key = tmp_path / "other"
    other_line = new_key(other_key)
    hosts.offer()
    hosts.server.offer("op_2", hosts.sent, other_line)
    if wrong == "withdrawn":
        hosts.server.withdraw(OFFER)
    if wrong == "replaced":
        hosts.server.offer(OFFER, hosts.sent, other_line)
    changed: dict[str, Any] = {"key": {"key": other_key}, "offer": {"offer_id": "op_3"}}.get(wrong, {})
    if wrong == "another's":
        changed = {"offer_id": "op_2"}
    with pytest.raises(TransferRefused, match="does not offer"):
        hosts.fetch(**changed)
    assert list(hosts.into.iterdir()) == []


def test_a_source_with_another_key_gets_nothing(hosts: Hosts, tmp_path: Path) -> None:
    hosts.offer()
    with pytest.raises(TransferRefused, match="another key"):
        hosts.fetch(source=TransferSource(HERE, hosts.server.port, new_key(tmp_path / "other")))
    for line in ("", "ssh-ed25519 AAAA", "no key"):
        with pytest.raises(TransferRefused, match="no key"):
            hosts.fetch(source=TransferSource(HERE, hosts.server.port, line))


def test_a_source_that_is_away_may_come_back(hosts: Hosts) -> None:
    port = hosts.server.port
    hosts.server.stop()
    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        hosts.fetch(source=TransferSource(HERE, port, hosts.source_line))


@pytest.mark.parametrize("offer_id", ["", "a b", "../x", "x" * 65])
def test_an_offer_has_a_plain_id(hosts: Hosts, offer_id: str) -> None:
    with pytest.raises(ValueError, match="id of an offer"):
        hosts.offer(offer_id)


def test_an_offer_is_to_a_key_of_a_host(hosts: Hosts) -> None:
    rsa = asyncssh.generate_private_key("ecdsa-sha2-nistp256").export_public_key().decode()
    for line in (rsa, "", "x"):
        with pytest.raises(ValueError, match=r"SSH key|of the kind"):
            hosts.server.offer(OFFER, hosts.sent, line)


async def refused(asked: Any) -> bool:
    """Return whether the source refuses; what it allows is closed."""
    try:
        made = await asyncio.wait_for(asked, 20)
    except (asyncssh.Error, asyncssh.ChannelListenError, OSError):
        return True
    return made is None


async def request(connection: Any, name: bytes, *words: bytes) -> bool | None:
    """Return None if the source refuses a request of a session."""
    process = await connection.create_process("x", encoding=None)
    return await process.channel._make_request(name, *words) or None


ASKED: dict[str, Callable[[Any], Any]] = {
    "a shell": lambda connection: connection.create_process(),
    "sftp": lambda connection: connection.start_sftp_client(),
    "a subsystem": lambda connection: connection.create_process(subsystem="rsync"),
    "a terminal": lambda connection: connection.create_process("x", term_type="xterm"),
    "a shell in a terminal": lambda connection: connection.create_process(term_type="xterm"),
    "the agent": lambda connection: request(connection, b"auth-agent-req@openssh.com"),
    "a display": lambda connection: request(connection, b"x11-req", bytes(1), String("x"), String("00"), bytes(4)),
    "a connection onwards": lambda connection: connection.open_connection("127.0.0.1", 22),
    "a connection to a socket": lambda connection: connection.open_unix_connection("/run/x.sock"),
    "a port": lambda connection: connection.forward_remote_port("", 0, "127.0.0.1", 22),
    "a socket": lambda connection: connection.forward_remote_path("/tmp/refused.sock", "/tmp/x"),
    "a tunnel": lambda connection: connection.create_tun(lambda: asyncssh.SSHTunTapSession(), 0),
}


@pytest.mark.parametrize("asked", list(ASKED))
def test_a_client_gets_nothing_else(hosts: Hosts, asked: str) -> None:
    hosts.offer()

    async def ask() -> bool:
        async with hosts.log_in() as connection:
            return await refused(ASKED[asked](connection))

    assert asyncio.run(ask())
    assert not Path("/tmp/refused.sock").exists()
    hosts.fetch()


@pytest.mark.parametrize(
    "command",
    [
        "touch {made}",
        "rsync --server --sender -r . /etc/",
        "rsync --server --sender -r . ../../etc/passwd",
        "rsync --server -r . /folder/",
        "rsync --server --daemon --config=/etc/passwd .",
        "scp -f /etc/passwd",
        "x" * 20_000,
    ],
)
def test_a_command_changes_nothing_of_what_runs(hosts: Hosts, tmp_path: Path, command: str) -> None:
    """The client speaks to the one rsync: a sender that has its own options and its own folder."""
    hosts.offer()

    async def ask() -> bytes:
        async with hosts.log_in() as connection:
            process = await connection.create_process(command.format(made=tmp_path / "made"), encoding=None)
            process.stdin.write(bytes([31, 0, 0, 0]))
            return bytes(await process.stdout.readexactly(4))

    assert asyncio.run(ask())[1:] == bytes(3)  # a version of rsync's protocol
    assert not (tmp_path / "made").exists()
    assert [path.name for path in hosts.sent.iterdir()] == ["file"]


def test_variables_and_requests_leave_nothing_in_memory(hosts: Hosts) -> None:
    hosts.offer()

    async def ask() -> Any:
        async with hosts.log_in() as connection:
            process = await connection.create_process("x", env={f"N{number}": "v" for number in range(2000)})
            (client,) = hosts.server._clients._known
            channel: Any = client._session._channel  # type: ignore[union-attr]
            process.close()
            return channel._env, len(channel._request_queue)

    assert asyncio.run(ask()) == ({}, 0)


def test_a_second_session_of_a_connection_is_refused(hosts: Hosts) -> None:
    hosts.offer()

    async def ask() -> bool:
        async with hosts.log_in() as connection:
            await connection.create_process("x")
            return await refused(connection.create_process("x"))

    assert asyncio.run(ask())


def test_of_three_connections_for_an_offer_the_oldest_one_ends(hosts: Hosts) -> None:
    hosts.offer()

    async def ask() -> list[bool]:
        made = [await hosts.log_in() for _ in range(3)]
        await asyncio.wait_for(made[0].wait_closed(), 20)
        closed = [connection.is_closed() for connection in made]
        for connection in made:
            connection.abort()
        return closed

    assert asyncio.run(ask()) == [True, False, False]


def test_a_client_that_tries_many_keys_is_not_heard(hosts: Hosts, tmp_path: Path) -> None:
    hosts.offer()
    keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(20)]
    with pytest.raises((asyncssh.Error, OSError)):
        asyncio.run(_log_in(hosts, client_keys=[*keys, str(hosts.target_key)]))
    asyncio.run(_log_in(hosts, client_keys=[*keys[:3], str(hosts.target_key)]))


async def _log_in(hosts: Hosts, **options: Any) -> None:
    async with hosts.log_in(**options):
        pass


def test_a_client_that_takes_short_packets_only_gets_nothing(hosts: Hosts) -> None:
    random_file(hosts.sent / "disk", MIB)
    hosts.offer()

    async def ask() -> bool:
        async with hosts.log_in() as connection:
            return await refused(connection.create_process("x", encoding=None, max_pktsize=1))

    assert asyncio.run(ask())


def test_a_client_that_begins_nothing_is_ended(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmbackend.transfer.clients.BEGIN_SECONDS", 0.5)
    hosts.offer()

    async def wait() -> None:
        connection = await hosts.log_in()
        await asyncio.wait_for(connection.wait_closed(), 30)

    asyncio.run(wait())
    until(lambda: not hosts.server._clients._known)
