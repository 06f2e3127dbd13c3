"""The SSH server for users, and commands of the guest program, in real machines."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest

from tests.cache import use_kit_dir
from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, empty_image, run, shell_image
from vmbackend.driver import Boot, Workload
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.kit import Kit, build_kit
from vmbackend.guest.session import GuestSession

__all__ = ["empty_image", "kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
KEY, OTHER = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ecdsa-sha2-nistp256")
HELPER = "/run/kit/bin/guest"


def public_key_line(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


@pytest.fixture(scope="session")
def kit() -> Kit:
    """The kit of the test cache, with the custom kernel if that is built."""
    return build_kit(use_kit_dir(), lambda *_: None)


@pytest.fixture
def start(tmp_path: Path, kit: Kit, shell_image: Path) -> Iterator[Start]:
    machines: list[harness.Machine] = []

    def start(image: Path = shell_image, clock: str = "utc", **boot: object) -> harness.Machine:
        machines.append(harness.start(tmp_path / "m", kit, image, Boot(hostname="guest-1", **boot), clock))
        return machines[-1]

    yield start
    for machine in machines:
        machine.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, kit: Kit, shell_image: Path) -> Iterator[harness.Machine]:
    """A machine without SSH, for tests that neither end it nor leave SSH switched on."""
    machine = harness.start(tmp_path_factory.mktemp("plain") / "m", kit, shell_image, Boot(hostname="guest-1"))
    yield wait_ready(machine)
    machine.close()


@pytest.fixture
def served(plain: harness.Machine) -> Iterator[harness.Machine]:
    """The same with SSH for KEY, for one test."""
    call_session(plain, lambda session: session.set_ssh(True, [public_key_line(KEY)]))
    yield plain
    call_session(plain, lambda session: session.set_ssh(False, []))


def wait_ready(machine: harness.Machine) -> harness.Machine:
    assert machine.line() == "ready", machine.console()
    return machine


def run_with_timeout(work: Awaitable[object], seconds: float = harness.HANG_SECONDS) -> object:
    async def bounded() -> object:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(bounded())


def call_session(machine: harness.Machine, work: Callable[[GuestSession], Awaitable[object]]) -> object:
    """Run `work` with a session of the control channel and return its result."""

    async def session() -> object:
        opened = machine.session()
        try:
            return await work(opened)
        finally:
            await opened.close()

    return run_with_timeout(session())


def run_as_user(
    machine: harness.Machine, command: str, key: asyncssh.SSHKey = KEY, **options: object
) -> tuple[int, str]:
    async def once() -> tuple[int, str]:
        async with machine.connect_user(key) as connection:
            done = await connection.run(command, **options)
            return done.exit_status, str(done.stdout)

    return run_with_timeout(once())


def is_refused(machine: harness.Machine, key: asyncssh.SSHKey | None = KEY, **options: object) -> bool:
    async def once() -> bool:
        try:
            async with machine.connect_user(key, **options):
                return False
        except asyncssh.PermissionDenied:
            return True

    return run_with_timeout(once())


def is_listening(machine: harness.Machine) -> bool:
    """Whether anything in the guest listens on port 22."""
    table = run(machine, "/run/kit/bin/busybox cat /proc/net/tcp /proc/net/tcp6")[0][1]
    return re.search(r":0016 \S+ 0A ", table) is not None


def wait_until_served(machine: harness.Machine, former: Sequence[int] = ()) -> None:
    """Until an SSH server, none of these processes, listens."""
    deadline = time.monotonic() + harness.HANG_SECONDS
    while not (set(ssh_server_pids(machine)) - set(former) and is_listening(machine)):
        assert time.monotonic() < deadline, machine.console()
        time.sleep(0.2)


def seconds_of_call(machine: harness.Machine, work: Callable[[GuestSession], Awaitable[object]]) -> float:
    begun = time.monotonic()
    call_session(machine, work)
    return time.monotonic() - begun


def ssh_server_pids(machine: harness.Machine) -> list[int]:
    script = "for p in /proc/[0-9]*; do case $(cat $p/cmdline) in user-ssh*) echo ${p#/proc/};; esac; done 2>/dev/null"
    return [int(pid) for pid in run(machine, script)[0][1].split()]


def test_without_ssh_no_server_runs(start: Start) -> None:
    machine = wait_ready(start(ssh_keys=(public_key_line(KEY),)))
    assert not is_listening(machine)
    assert ssh_server_pids(machine) == []


def test_a_users_key_opens_a_shell_of_the_image_with_the_machines_environment(start: Start) -> None:
    machine = wait_ready(
        start(
            ssh=True,
            ssh_keys=(public_key_line(OTHER), public_key_line(KEY)),
            env={"WORD": "a b", "PATH": "/opt/x:/bin"},
        )
    )
    assert run_as_user(machine, "echo $WORD $PATH $HOME $USER $SHELL $(id -u) $HOSTNAME; pwd; exit 7") == (
        7,
        "a b /opt/x:/bin /root root /bin/sh 0 guest-1\n/root\n",
    )
    assert run_as_user(machine, "echo $TERM; test -t 0", term_type="xterm", key=OTHER) == (0, "xterm\r\n")


def test_only_the_given_keys_may_log_in(served: harness.Machine) -> None:
    run(served, f"mkdir -p /root/.ssh; echo '{public_key_line(OTHER)}' > /root/.ssh/authorized_keys")
    assert is_refused(served, OTHER)
    assert is_refused(served, served.client_key)  # the key of the control channel
    assert is_refused(served, None, password="root", preferred_auth="password")
    assert not is_refused(served, KEY)


def test_a_machine_without_keys_refuses_every_login(start: Start) -> None:
    machine = wait_ready(start(ssh=True))
    assert is_listening(machine)
    assert is_refused(machine)


@pytest.mark.parametrize("image", ["shell_image", "empty_image"])
def test_sftp_and_port_forwarding_need_nothing_of_the_image(
    start: Start, image: str, request: pytest.FixtureRequest
) -> None:
    if image == "shell_image":
        machine: harness.Machine = request.getfixturevalue("served")
    else:
        machine = wait_ready(start(request.getfixturevalue(image), ssh=True, ssh_keys=(public_key_line(KEY),)))

    async def work() -> tuple[bytes, bytes]:
        async with machine.connect_user(KEY) as connection:
            async with connection.start_sftp_client() as sftp:
                async with sftp.open("/root/file", "wb") as file:
                    await file.write(b"x" * 100_000)
                async with sftp.open("file", "rb") as file:
                    content = await file.read()
            reader, writer = await connection.open_connection("127.0.0.1", 10022)
            banner = await reader.read(20)
            writer.close()
            return content, banner

    content, banner = run_with_timeout(work())
    assert content == b"x" * 100_000
    assert banner.startswith(b"SSH-2.0")
    assert run_as_user(machine, "/run/kit/bin/busybox cat /etc/hostname") == (0, "guest-1\n")


def test_ssh_is_switched_on_and_off_while_the_machine_runs(plain: harness.Machine) -> None:
    machine = plain
    other = seconds_of_call(machine, lambda session: session.execute(["id"]))
    assert seconds_of_call(machine, lambda session: session.set_ssh(True, [public_key_line(KEY)])) < 3 + 10 * other
    assert run_as_user(machine, "echo in") == (0, "in\n")
    call_session(machine, lambda session: session.set_ssh(True, [public_key_line(OTHER)]))
    assert is_refused(machine, KEY)
    assert run_as_user(machine, "echo in", key=OTHER) == (0, "in\n")
    call_session(machine, lambda session: session.set_ssh(False, []))
    assert not is_listening(machine)
    assert ssh_server_pids(machine) == []
    call_session(machine, lambda session: session.set_ssh(False, []))
    call_session(machine, lambda session: session.set_ssh(True, [public_key_line(KEY)]))
    assert run_as_user(machine, "echo again") == (0, "again\n")
    call_session(machine, lambda session: session.set_ssh(False, []))


def test_open_sessions_survive_new_keys_and_end_when_ssh_is_switched_off(served: harness.Machine) -> None:
    async def work() -> tuple[int, str, int, bool]:
        control = served.session()
        async with served.connect_user(KEY) as connection:
            plain = await connection.create_process("trap '' HUP TERM; sleep 777 & sleep 777")
            shell = await connection.create_process(term_type="xterm")
            await control.set_ssh(True, [public_key_line(OTHER)])
            shell.stdin.write("sleep 777 & echo pid $((1 + 1))\n")
            output = await shell.stdout.readuntil("pid 2")
            count = await control.ssh_connections()
            await control.set_ssh(False, [])
            await connection.wait_closed()
            closed = plain.is_closing() and shell.is_closing()
        after = await control.ssh_connections()
        await control.close()
        return count, output, after, closed

    count, output, after, closed = run_with_timeout(work())
    assert (count, after, closed) == (1, 0, True)
    assert "pid 2" in output
    listing = run(served, "for f in /proc/[0-9]*/cmdline; do cat $f; echo; done 2>/dev/null")[0][1]
    assert "sleep\x00777" not in listing


def test_root_of_the_guest_may_switch_ssh_off_and_ends_its_own_session(served: harness.Machine) -> None:
    assert run(served, f"echo '{public_key_line(OTHER)}' | {HELPER} run -- {HELPER} ssh on")[0][0] == 0
    assert run_as_user(served, "echo in", key=OTHER) == (0, "in\n")

    async def off() -> int | None:
        async with served.connect_user(OTHER) as connection:
            return (await connection.run(f"{HELPER} ssh off")).exit_status

    assert run_with_timeout(off()) is None
    assert not is_listening(served)


def test_a_port_in_use_is_an_error_and_the_server_starts_once_it_is_free(plain: harness.Machine) -> None:
    machine = plain
    run(machine, "nc -ll -p 22 -e /bin/cat </dev/null >/dev/null 2>&1 & echo $! > /root/pid; sleep 0.5")
    with pytest.raises(GuestCommandInvalid, match="port 22"):
        call_session(machine, lambda session: session.set_ssh(True, [public_key_line(KEY)]))
    run(machine, "kill -9 $(cat /root/pid)")
    wait_until_served(machine)
    assert run_as_user(machine, "echo in") == (0, "in\n")
    call_session(machine, lambda session: session.set_ssh(False, []))


def test_a_killed_ssh_server_is_restarted(served: harness.Machine) -> None:
    killed = ssh_server_pids(served)
    assert len(killed) == 1
    run(served, f"kill -9 {killed[0]}")
    wait_until_served(served, former=killed)
    assert run_as_user(served, "echo in") == (0, "in\n")


def test_ssh_and_workloads_continue_after_a_sleep(start: Start, kit: Kit, shell_image: Path) -> None:
    counting = Workload("counter", ("sh", "-c", "while :; do echo x >> /root/counts; sleep 0.2; done"))
    asleep = wait_ready(start(workloads=(counting,), wait_for_init=True))
    call_session(asleep, lambda session: session.set_ssh(True, [public_key_line(KEY)]))
    asleep.sleep()
    machine = harness.wake(asleep, kit, shell_image)
    try:
        count = "/run/kit/bin/busybox wc -l < /root/counts"
        before = int(run_as_user(machine, count)[1])
        time.sleep(1)
        assert int(run_as_user(machine, count)[1]) > before
        assert machine.resync_guest(os.urandom(64))[0] == "fresh"
        call_session(machine, lambda session: session.set_ssh(False, []))
        assert not is_listening(machine)
    finally:
        machine.close()


def test_an_invalid_ssh_key_is_refused_before_it_is_sent(plain: harness.Machine) -> None:
    machine = plain
    for bad in (
        "nonsense",
        f'command="id" {public_key_line(KEY)}',
        f"{public_key_line(KEY)}\n{public_key_line(OTHER)}",
    ):
        with pytest.raises(GuestCommandInvalid):
            call_session(machine, lambda session, bad=bad: session.set_ssh(True, [bad]))
    assert not is_listening(machine)


def agent_exec(machine: harness.Machine, *arguments: str, data: bytes = b"") -> tuple[int, str]:
    request = {"path": HELPER, "arg": list(arguments), "capture-output": True}
    pid = machine.agent("guest-exec", {**request, "input-data": base64.b64encode(data).decode()})["return"]["pid"]
    deadline = time.monotonic() + harness.HANG_SECONDS
    while time.monotonic() < deadline:
        status = machine.agent("guest-exec-status", {"pid": pid})["return"]
        if status["exited"]:
            return status["exitcode"], base64.b64decode(status.get("out-data", "")).decode()
        time.sleep(0.05)
    raise TimeoutError("the agent's command did not end")


def test_the_agent_counts_connections(plain: harness.Machine) -> None:
    machine = plain

    async def while_connected() -> tuple[int, str]:
        async with machine.connect():
            return await asyncio.to_thread(agent_exec, machine, "connections", "10022")

    assert run_with_timeout(while_connected()) == (0, "1\n")
    assert agent_exec(machine, "connections", "22") == (0, "0\n")
    assert agent_exec(machine, "connections", "none")[0] == 126


def test_a_configuration_of_maximum_size_arrives_complete(start: Start) -> None:
    env = {f"BIG{number}": chr(65 + number) * 60_000 for number in range(4)}
    machine = wait_ready(start(env=env))
    script = 'for n in 0 1 2 3; do eval "printf %s \\"\\$BIG$n\\"" | /run/kit/bin/busybox md5sum; done'
    got = [found.split()[0] for found in run(machine, f"{HELPER} run -- sh -c '{script}'")[0][1].splitlines()]
    assert got == [hashlib.md5(value.encode()).hexdigest() for value in env.values()]
