"""Programs that listen on the guest's loopback only, reached from outside in real machines."""

from __future__ import annotations

import hashlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from tests.free_ports import free_port
from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import run
from tests.vmbackend.test_guest_ssh import kit, wait_ready
from tests.vmbackend.test_relay_links import MAX_PORT_LINKS
from vmbackend.driver import Boot
from vmbackend.guest.kit import Kit

__all__ = ["kit"]
pytestmark = pytest.mark.vm
PORT = harness.WEB_PORT
PATIENCE = 60  # seconds; what is waited for takes one
KIT = "/run/kit/bin/busybox"
# It says whom a program takes for its client.
WHO = b"from %s\n"
FROM_OUTSIDE, FROM_INSIDE = WHO % b"10.0.2.2", WHO % b"127.0.0.1"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory, kit: Kit) -> Iterator[harness.Machine]:
    folder = tmp_path_factory.mktemp("loopback")
    root = harness.busybox_root(folder / "root")
    (root / "bin/httpd").symlink_to("busybox")
    folder_of_scripts = root / "www/cgi-bin"
    folder_of_scripts.mkdir(parents=True)
    for name, command in (("who", 'echo "from $REMOTE_ADDR"'), ("sum", f"{KIT} sha256sum")):
        (folder_of_scripts / name).write_text(f'#!/bin/sh\nprintf "\\r\\n"; {command}\n')
        (folder_of_scripts / name).chmod(0o755)
    (root / "www/large").write_bytes(b"0123456789abcdef" * 200_000)
    machine = harness.start(folder / "m", kit, harness.make_squashfs(root, folder / "base"), Boot(hostname="guest-1"))
    yield wait_ready(machine)
    machine.close()


def serve(guest: harness.Machine, address: str, port: int = PORT) -> None:
    """Replace the web server by one at this address, at once. It runs as soon as it has bound it."""
    stop(guest)
    assert run(guest, f"httpd -p {address}:{port} -h /www")[0][0] == 0


def stop(guest: harness.Machine) -> None:
    """End every server of these tests."""
    run(guest, f"{KIT} killall httpd; while {KIT} pidof httpd; do {KIT} usleep 10000; done")


def ask(guest: harness.Machine, path: str) -> bytes:
    """The body of an answer; nothing where there is none."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", guest.web_port), timeout=60) as client:
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return client.makefile("rb").read().partition(b"\r\n\r\n")[2]
    return b""


def ask_until(guest: harness.Machine, wanted: bytes) -> None:
    deadline = time.monotonic() + PATIENCE
    while (said := ask(guest, "/cgi-bin/who")) != wanted:
        assert time.monotonic() < deadline, (said, guest.console())
        time.sleep(0.1)


def test_a_program_on_loopback_is_reached_whenever_it_starts(guest: harness.Machine) -> None:
    stop(guest)
    ask_until(guest, b"")
    serve(guest, "127.0.0.1")
    ask_until(guest, FROM_INSIDE)
    serve(guest, "127.0.0.53")
    ask_until(guest, FROM_INSIDE)
    stop(guest)
    ask_until(guest, b"")


def test_a_program_on_the_loopback_of_ipv6_is_reached(guest: harness.Machine) -> None:
    serve(guest, "[::1]")
    ask_until(guest, WHO % b"[::1]")


def test_a_program_that_listens_on_all_addresses_is_reached_directly_and_can_follow_at_once(
    guest: harness.Machine,
) -> None:
    """Nothing of the kit may have its address: it starts in the moment in which the former one ends."""
    for _ in range(3):
        serve(guest, "127.0.0.1")
        ask_until(guest, FROM_INSIDE)
        serve(guest, "0.0.0.0")
        ask_until(guest, FROM_OUTSIDE)
    serve(guest, "10.0.2.15")
    ask_until(guest, FROM_OUTSIDE)


def test_only_the_port_that_is_asked_for_is_reached(guest: harness.Machine) -> None:
    serve(guest, "127.0.0.1", PORT + 1)
    time.sleep(2)  # several looks of the kit at what listens
    assert ask(guest, "/cgi-bin/who") == b""
    run(guest, f"{KIT} killall httpd")


def test_many_bytes_pass_both_ways_and_each_direction_ends_for_itself(guest: harness.Machine) -> None:
    serve(guest, "127.0.0.1")
    ask_until(guest, FROM_INSIDE)
    assert ask(guest, "/large") == b"0123456789abcdef" * 200_000
    data = os.urandom(3_000_000)
    with socket.create_connection(("127.0.0.1", guest.web_port), timeout=harness.HANG_SECONDS) as client:
        client.sendall(f"POST /cgi-bin/sum HTTP/1.0\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        client.shutdown(socket.SHUT_WR)
        said = client.makefile("rb").read().partition(b"\r\n\r\n")[2]
    assert said.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_connections_that_say_nothing_are_no_burden_for_others(guest: harness.Machine) -> None:
    serve(guest, "127.0.0.1")
    ask_until(guest, FROM_INSIDE)
    silent = [socket.create_connection(("127.0.0.1", guest.web_port)) for _ in range(60)]
    answers: list[bytes] = []
    askers = [threading.Thread(target=lambda: answers.append(ask(guest, "/cgi-bin/who"))) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert answers == [FROM_INSIDE] * 8
    for client in silent:
        client.close()


def test_a_port_with_more_silent_connections_than_it_may_have_is_no_burden_for_another(guest: harness.Machine) -> None:
    serve(guest, "127.0.0.1")
    ask_until(guest, FROM_INSIDE)
    other = replace(guest, web_port=free_port())
    forward = f"hostfwd_add tcp:127.0.0.1:{other.web_port}-:{PORT + 1}"
    guest.qmp("human-monitor-command", **{"command-line": forward})
    # Stopped, it has no process for each of them, and ends none after a minute. None is given up, either.
    run(guest, "echo 100 > /proc/sys/net/ipv4/tcp_syn_retries")
    assert run(guest, f"{KIT} killall -STOP httpd && httpd -p 127.0.0.1:{PORT + 1} -h /www")[0][0] == 0
    with ExitStack() as silent:
        silent.callback(run, guest, f"{KIT} killall -CONT httpd")
        ask_until(other, FROM_INSIDE)
        address = ("127.0.0.1", guest.web_port)
        clients = [silent.enter_context(socket.create_connection(address)) for _ in range(MAX_PORT_LINKS + 1)]
        assert len(select.select(clients, [], [], PATIENCE)[0]) == 1, "the last one is refused"
        assert ask(other, "/cgi-bin/who") == FROM_INSIDE
    stop(guest)


def test_a_relay_that_was_killed_is_started_again(guest: harness.Machine) -> None:
    serve(guest, "127.0.0.1")
    ask_until(guest, FROM_INSIDE)
    assert run(guest, f"{KIT} killall -9 relay")[0][0] == 0
    ask_until(guest, FROM_INSIDE)
