"""The guest kit in real machines: plain QEMU, an image with a shell and an empty one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import asyncssh
import pytest

from tests.cache import DEBIAN_KIT_DIR, KIT_DIR, use_kit_dir
from tests.run_extent import campaign_after
from tests.vmbackend import vm_harness as harness
from vmbackend.driver import Boot
from vmbackend.guest.kernel import custom_kernel
from vmbackend.guest.kit import Kit, build_kit, find_kit

pytestmark = pytest.mark.vm

Start = Callable[..., harness.Machine]
T = TypeVar("T")
RUN = "/run/kit/bin/guest run "


# With both kernels where `make test-kernel` has built the own one, which is the one that runs then.
KERNELS = campaign_after(1, ["own", "debian"]) if custom_kernel(KIT_DIR) else ["debian"]


@pytest.fixture(scope="session", params=KERNELS)
def kit(request: pytest.FixtureRequest) -> Kit:
    """With Debian's kernel, or with the project's own."""
    return build_kit(use_kit_dir(KIT_DIR if request.param == "own" else DEBIAN_KIT_DIR), lambda *_: None)


@pytest.fixture(scope="session")
def shell_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shell")
    return harness.make_squashfs(harness.busybox_root(folder / "root"), folder / "base")


@pytest.fixture(scope="session")
def empty_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    (folder / "root").mkdir()
    return harness.make_squashfs(folder / "root", folder / "base")


@pytest.fixture
def start(tmp_path: Path, kit: Kit, shell_image: Path) -> Iterator[Start]:
    machines: list[harness.Machine] = []

    def start(image: Path = shell_image, **boot: object) -> harness.Machine:
        machines.append(harness.start(tmp_path / "m", kit, image, Boot(hostname="guest-1", **boot)))
        return machines[-1]

    yield start
    for machine in machines:
        machine.close()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, kit: Kit, shell_image: Path) -> Iterator[harness.Machine]:
    """A machine for tests that neither end it nor change what others look at."""
    boot = Boot(hostname="guest-1", env={"GREETING": "a b"})
    machine = harness.start(tmp_path_factory.mktemp("ready") / "m", kit, shell_image, boot)
    assert machine.line() == "ready"
    yield machine
    machine.close()


def over_ssh(machine: harness.Machine, work: Callable[[asyncssh.SSHClientConnection], Awaitable[T]]) -> T:
    async def session() -> T:
        async with machine.connect() as connection:
            return await work(connection)

    return asyncio.run(asyncio.wait_for(session(), harness.HANG_SECONDS))


def run(machine: harness.Machine, *commands: str) -> list[tuple[int | None, str]]:
    async def work(connection: asyncssh.SSHClientConnection) -> list[tuple[int | None, str]]:
        done = [await connection.run(command) for command in commands]
        return [(each.exit_status, str(each.stdout)) for each in done]

    return over_ssh(machine, work)


def wait_for_output(machine: harness.Machine, command: str, wanted: str) -> None:
    """Wait until the command prints the wanted output."""
    output = ""

    async def work(connection: asyncssh.SSHClientConnection) -> None:
        nonlocal output
        # On one connection: on emulation the handshake of each costs more than the command.
        while (output := str((await connection.run(command)).stdout)) != wanted:
            await asyncio.sleep(0.2)

    try:
        over_ssh(machine, work)
    except TimeoutError:
        raise AssertionError(f"{output!r}, not {wanted!r}: {machine.console()}") from None


def test_the_kits_first_process_waits_also_where_no_host_is_at_its_port(ready: harness.Machine) -> None:
    """The port of the host's requests polls as readable then; here nothing is connected to it."""
    look = "/run/kit/bin/busybox cut -d' ' -f14,15 /proc/$(cat /run/kit/stage)/stat"
    clock = "/run/kit/bin/busybox cut -d' ' -f1 /proc/uptime"
    shown = run(ready, f"{look}; {clock}; sleep 4; {look}; {clock}")[0][1].split()
    first, second = ((int(user) + int(system), float(at)) for user, system, at in (shown[:3], shown[3:]))
    assert second[0] - first[0] < 0.5 * 100 * (second[1] - first[1])  # hundredths of a second


def test_commands_get_the_machines_environment_user_and_directory(ready: harness.Machine) -> None:
    block = b"--env\0MORE=1\0--\0sh\0-c\0echo $MORE; cat\0"

    async def framed(connection: asyncssh.SSHClientConnection) -> str:
        done = await connection.run(f"{RUN} --stdin-args {len(block)}", input=block + b"rest", encoding=None)
        return bytes(done.stdout).decode()

    assert over_ssh(ready, framed) == "1\nrest"
    results = run(
        ready,
        RUN + "--env X=1 --cwd /tmp --user dev -- sh -c 'echo $GREETING $X $PWD $HOME; id -u; id -G'",
        RUN + "--user 12:34 -- sh -c 'id -u; id -g'",
        RUN + "-- sh -c 'exit 7'",
        RUN + "-- sh -c 'kill -9 $$'",
        RUN + "-- nothing-of-that-name",
        RUN + "--user nobody-here -- id",
        RUN + "--cwd /not/there -- id",
        RUN + "--timeout 0.5 -- sh -c 'sleep 77 & sleep 77'",
        "for f in /proc/[0-9]*/cmdline; do cat $f; done | cat",
    )
    assert results[0] == (0, "a b 1 /tmp /home/dev\n1000\n1000 1005\n")
    assert results[1] == (0, "12\n34\n")
    assert [code for code, _ in results[2:8]] == [7, 137, 127, 126, 126, 124]
    assert "sleep\x0077" not in results[8][1]


@pytest.mark.parametrize("image", ["shell_image", "empty_image"])
def test_sftp_needs_nothing_of_the_image(start: Start, image: str, request: pytest.FixtureRequest) -> None:
    if image == "shell_image":
        machine: harness.Machine = request.getfixturevalue("ready")
    else:
        machine = start(request.getfixturevalue(image))
        assert machine.line() == "ready"

    async def work(connection: asyncssh.SSHClientConnection) -> tuple[bytes, int]:
        async with connection.start_sftp_client() as sftp:
            async with sftp.open("/root/file", "wb") as file:
                await file.write(b"x" * 300_000)
            async with sftp.open("/root/file", "rb") as file:
                content = await file.read()
            usage = await sftp.statvfs("/run/kit/data")
            return content, usage.blocks * usage.frsize

    content, disk = over_ssh(machine, work)
    assert content == b"x" * 300_000
    assert 150 << 20 < disk <= 256 << 20
    assert run(machine, "/run/kit/bin/busybox cat /etc/hostname") == [(0, "guest-1\n")]


def test_the_control_channel_survives_removed_system_files(start: Start) -> None:
    machine = start()
    assert machine.line() == "ready"
    run(machine, "/run/kit/bin/busybox rm -rf /root /etc /bin /run /dev/null /dev/ptmx /tmp")
    assert run(machine, RUN + "-- /run/kit/bin/busybox echo alive")[0] == (0, "alive\n")

    async def names(connection: asyncssh.SSHClientConnection) -> list[str]:
        async with connection.start_sftp_client() as sftp:
            return [str(name) for name in await sftp.listdir("/")]

    assert "bin" not in over_ssh(machine, names)


def test_the_exit_of_the_main_process_is_reported_and_powers_off(start: Start) -> None:
    script = "echo $WORD; id -u; pwd; exit 3"
    machine = start(cmd=("sh", "-c", script), env={"WORD": "secret"}, user="dev", working_dir="/home/dev")
    assert machine.line() == "ready"
    assert machine.line() == "exit 3 0"
    machine.wait_off()
    assert "secret" not in machine.console()
    log = machine.file_on_disk("/var/log/workspace/cmd.log")
    assert harness.text_of_records(log) == "secret\n1000\n/home/dev\n"
    assert not machine.needs_recovery()


def test_output_just_before_a_signal_ends_the_main_process_is_logged(start: Start) -> None:
    """The pipe is full when the process exits: the machine must read it before it powers off.

    The first line becomes eight records, each with a prefix of 40 bytes.
    """
    machine = start(cmd=("sh", "-c", "head -c 60000 /dev/zero; echo last; kill -9 $$"))
    assert [machine.line(), machine.line()] == ["ready", "exit 137 9"]  # of a signal: above 128
    machine.wait_off()
    log = machine.file_on_disk("/var/log/workspace/cmd.log")
    assert len(log) == 60004 + 8 * (40 + 1)
    assert log.endswith("last\n")


def test_a_main_process_that_cannot_start_exits_with_127(start: Start) -> None:
    machine = start(cmd=("/not/there",))
    assert [machine.line(), machine.line()] == ["ready", "exit 127 0"]


def test_the_main_process_gets_sigterm_at_the_power_button(start: Start) -> None:
    machine = start(cmd=("sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.1; done"))
    assert machine.line() == "ready"
    wait_for_output(machine, harness.log_text("cmd"), "up\n")
    machine.qmp("system_powerdown")
    assert machine.line() == "exit 9 0"
    assert "programs" not in machine.wait_off()


def test_an_entrypoint_that_exits_with_0_is_not_restarted_and_the_power_button_ends_its_machine(start: Start) -> None:
    machine = start(entrypoint=("sh", "-c", "echo once >> /root/starts"))
    assert machine.line() == "ready"
    wait_for_output(machine, "cat /root/starts", "once\n")
    time.sleep(2)
    assert run(machine, "cat /root/starts") == [(0, "once\n")]
    machine.qmp("system_powerdown")
    assert "programs" not in machine.wait_off()


def test_services_started_with_low_priority_return_to_normal_priority(ready: harness.Machine) -> None:
    assert ready.agent("guest-ping") == {"return": {}}
    # Without kernel threads, which have no executable.
    nice = "for p in /proc/[0-9]*; do [ -e $p/exe ] && /run/kit/bin/busybox awk '{ print $2, $19 }' $p/stat; done"
    deadline = time.monotonic() + harness.HANG_SECONDS
    while set((found := dict(line.split() for line in run(ready, nice)[0][1].splitlines())).values()) != {"0"}:
        assert time.monotonic() < deadline, found
    assert {"(runsvdir)", "(runsv)", "(qemu-ga)", "(dropbear)"} <= set(found)


def test_the_agent_runs_commands(ready: harness.Machine) -> None:
    path = "/run/kit/bin/guest"
    begun = ready.agent("guest-exec", {"path": path, "arg": ["enter", "/bin/sh", "-c", "exit 4"]})
    pid = begun["return"]["pid"]
    deadline = time.monotonic() + harness.HANG_SECONDS
    while time.monotonic() < deadline:
        status = ready.agent("guest-exec-status", {"pid": pid})["return"]
        if status["exited"]:
            break
        time.sleep(0.05)
    assert status["exitcode"] == 4


@pytest.mark.parametrize("command", ["poweroff", "reboot"])
def test_the_guests_user_can_end_the_machine(start: Start, command: str) -> None:
    machine = start()
    assert machine.line() == "ready"
    run(machine, f"{command}; sleep 1")
    assert "programs" not in machine.wait_off()


def test_a_machine_without_its_disk_logs_the_cause_and_powers_off(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\0" * 1_048_576)
    machine = start(broken)
    machine.wait_off()
    assert "kit: the machine cannot start: cannot mount the disk 'base'" in machine.console()


def test_a_kit_is_found_where_it_was_built_and_not_built_twice(kit: Kit) -> None:
    folder = kit.kernel.parent.parent
    before = kit.initrd.stat()
    assert build_kit(folder, lambda _percent, _words: None) == find_kit(folder) == kit
    assert kit.initrd.stat().st_mtime_ns == before.st_mtime_ns
