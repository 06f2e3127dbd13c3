"""Two machines out of one: connections stay with the parent, and what opens the one opens nothing of the other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import asyncssh
import pytest

from vmbackend.driver import Boot, MachineSpec
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt.firewall import mac_for

from .conftest import Harness
from .snapshot_scenes import load_fork, run
from .test_guest_ssh import public_key_line

pytestmark = pytest.mark.vm
HANG_SECONDS = 60.0
ECHO, TICKS, WAITING, WHO, INSIDE, OWN = 7000, 7001, 7002, 7003, 7004, 7005
# Handlers note that they were called, and that their connection has ended. The servers of two ports are stopped by the
# test, so that connections to them wait.
SERVERS = f"""
cd /dev/shm
echo 'trap "" PIPE; echo >> echo-called; cat; echo >> echo-ended' > echo
echo 'trap "" PIPE; while echo tick; do sleep 0.1; done; echo >> ticks-ended' > ticks
echo 'echo >> waiting-called; cat' > waiting
echo 'cat /who' > who
echo 'echo inside' > inside
serve() {{
    name=$1; shift
    printf '#!/bin/sh\\nexec /bin/sh /dev/shm/%s 2> /dev/null\\n' $name > $name-server
    chmod 755 $name-server
    setsid nc "$@" -e /dev/shm/$name-server < /dev/null > /dev/null 2>&1 &
}}
serve echo -ll -p {ECHO}
serve ticks -ll -p {TICKS}
serve waiting -ll -p {WAITING}
echo $! > waiting-pid
serve who -ll -p {WHO}
serve inside -ll -p {INSIDE}
echo $! >> waiting-pid
until [ $(netstat -tln | grep -c ':700[0-4] ') = 5 ]; do sleep 0.1; done
"""
ASK_INSIDE = f"setsid nc 127.0.0.1 {INSIDE} < /dev/null > /dev/shm/asked-inside 2> /dev/null &"


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def connect(address: GuestAddress, port: int) -> socket.socket:
    return socket.create_connection((address.ip, port), HANG_SECONDS)


def answer_of(address: GuestAddress, port: int) -> str | None:
    """All that a server says; None: nothing can be reached there."""
    try:
        with socket.create_connection((address.ip, port), 5) as client:
            return client.makefile().read().strip()
    except OSError:
        return None


def is_open(address: GuestAddress, port: int) -> bool:
    try:
        connect(address, port).close()
    except ConnectionRefusedError:
        return False
    return True


class Talk:
    """Lines to a server that sends each back, from now to `close`: one connection for all of them."""

    def __init__(self, address: GuestAddress) -> None:
        self._client = connect(address, ECHO)
        self.count = 0
        self._ended = threading.Event()
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._talk)
        self._thread.start()

    def _talk(self) -> None:
        try:
            lines = self._client.makefile("rw")
            while not self._ended.wait(0.02):
                lines.write(f"{self.count}\n")
                lines.flush()
                assert lines.readline() == f"{self.count}\n"
                self.count += 1
        except BaseException as error:
            self._failed.append(error)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()
        assert not self._failed, self._failed


@contextmanager
def talking(address: GuestAddress) -> Iterator[Talk]:
    talk = Talk(address)
    try:
        yield talk
    finally:
        talk.close()


def test_connections_of_the_parent_live_and_the_copies_of_them_fail(harness: Harness) -> None:
    """As do those that no program has accepted yet. Those of the child with itself go on, and what listens does so."""
    parent = harness.running_machine()
    run(harness, parent, SERVERS)
    run(harness, parent, f"kill -STOP $(cat /dev/shm/waiting-pid)\n{ASK_INSIDE}")
    with talking(parent) as talk, connect(parent, TICKS) as ticks, connect(parent, WAITING) as waiting:
        waiting.sendall(b"asked\n")
        run(harness, parent, "until [ -s /dev/shm/echo-called ]; do sleep 0.1; done")
        harness.driver.snapshot(parent.machine_id, "s1")
        child = load_fork(harness, "s1")
        said = talk.count
        run(harness, child, "kill -CONT $(cat /dev/shm/waiting-pid); sleep 5")
        assert run(harness, child, "cd /dev/shm; cat echo-ended | wc -l; cat ticks-ended | wc -l").split() == ["1", "1"]
        assert run(harness, child, "[ -e /dev/shm/waiting-called ] || echo none") == "none"
        assert run(harness, child, "cat /dev/shm/asked-inside") == "inside"
        assert run(harness, child, f"netstat -tn | grep -c '{parent.ip}:' || :") == "0"
        with talking(child), connect(child, WAITING) as own:
            own.sendall(b"own\n")
            assert own.makefile().readline() == "own\n"
        assert run(harness, parent, "cd /dev/shm; ls echo-ended ticks-ended 2> /dev/null || :") == ""
        run(harness, parent, "kill -CONT $(cat /dev/shm/waiting-pid)")
        assert waiting.makefile().readline() == "asked\n"
        received = ticks.makefile()
        assert {received.readline() for _ in range(50)} == {"tick\n"}
        run(harness, parent, "sleep 1")
    assert talk.count > said


def prepared(harness: Harness, spec: MachineSpec) -> GuestAddress:
    identity = harness.driver.prepare(spec)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)


def opens(address: GuestAddress, key: asyncssh.SSHKey, host_key: str) -> bool:
    """Whether a user with this key gets in who knows the machine by this key of a host."""

    async def log_in() -> bool:
        known = asyncssh.import_known_hosts(f"{address.ip} {host_key}\n")
        options = {"known_hosts": known, "client_keys": [key], "agent_path": None, "config": None}
        with suppress(asyncssh.PermissionDenied, asyncssh.HostKeyNotVerifiable):
            async with asyncssh.connect(address.ip, username="root", **options) as connection:
                return (await connection.run("true")).exit_status == 0
        return False

    return asyncio.run(asyncio.wait_for(log_in(), HANG_SECONDS))


def test_keys_of_the_parent_open_nothing_of_the_child_and_the_reverse(harness: Harness) -> None:
    keys = {name: asyncssh.generate_private_key("ssh-ed25519") for name in ("parent", "child")}
    boots = {name: Boot(hostname=name, ssh=True, ssh_keys=(public_key_line(key),)) for name, key in keys.items()}
    parent = prepared(harness, replace(harness.spec(), boot=boots["parent"]))
    harness.driver.start(parent.machine_id)
    harness.driver.wait_ready(parent.machine_id, harness.boot_seconds)
    harness.driver.snapshot(parent.machine_id, "s1")
    child = prepared(harness, replace(harness.spec(snapshot="s1"), boot=boots["child"]))
    closed = prepared(harness, replace(harness.spec(snapshot="s1"), boot=Boot(hostname="closed")))
    for each in (child, closed):
        harness.driver.load(each.machine_id, "s1")
        harness.driver.wait_ready(each.machine_id, harness.boot_seconds)
    addresses = {"parent": parent, "child": child}
    for name, address in addresses.items():
        for known, other in addresses.items():
            for owner, key in keys.items():
                assert opens(address, key, other.host_key) is (name == known == owner), (name, known, owner)
    assert answer_of(closed, 22) is None
    for one, other in ((parent, child), (child, parent), (closed, parent)):
        taken_for = replace(one, host_key=other.host_key)
        with pytest.raises(GuestUnreachable):
            harness.pool.call(taken_for, lambda session: session.execute(["true"]), HANG_SECONDS)
        assert run(harness, one, "echo here") == "here"


def test_addresses_of_the_parent_lead_to_the_parent_alone_and_the_reverse(harness: Harness) -> None:
    """Also while the child says that it is its parent, and once one of them is gone."""
    parent = harness.running_machine()
    run(harness, parent, f"{SERVERS}\nhttpd -p {parent.ip}:{OWN} -h /dev/shm < /dev/null > /dev/null 2>&1")
    harness.driver.snapshot(parent.machine_id, "s1")
    child = load_fork(harness, "s1")
    for each, name in ((parent, "parent"), (child, "child")):
        run(harness, each, f"echo {name} > /who")
        assert answer_of(each, WHO) == name
    assert (is_open(parent, OWN), is_open(child, OWN)) == (True, False)
    impostor = f"""
    ip address add {parent.ip}/24 dev eth0
    ip link set eth0 address {mac_for(parent.ip)} || ip link set eth0 down address {mac_for(parent.ip)} up
    arping -c 5 -U -I eth0 {parent.ip} > /dev/null 2>&1
    cat /sys/class/net/eth0/address > /dev/shm/was
    sleep 3
    ip link set eth0 address {mac_for(child.ip)} || ip link set eth0 down address {mac_for(child.ip)} up
    echo done > /dev/shm/done
    """
    run(harness, child, f"echo '{impostor}' > /impostor; setsid sh /impostor < /dev/null > /dev/null 2>&1 &")
    answers = {answer_of(parent, WHO) for _ in range(60)}
    assert answers == {"parent"}
    assert run(harness, child, "until [ -e /dev/shm/done ]; do sleep 0.1; done; cat /dev/shm/was") == mac_for(parent.ip)
    third = load_fork(harness, "s1")
    harness.driver.delete(parent.machine_id)
    assert answer_of(parent, WHO) is None
    assert run(harness, third, "echo third > /who; cat /who") == "third"
    assert (answer_of(third, WHO), answer_of(child, WHO)) == ("third", "child")
    harness.driver.delete(child.machine_id)
    assert answer_of(child, WHO) is None
    assert answer_of(third, WHO) == "third"
