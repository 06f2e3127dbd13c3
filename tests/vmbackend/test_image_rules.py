"""What images take for granted in a machine: their user and folder, kernel settings, limits, renames of folders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.hold_factory import read_until
from tests.vmbackend.test_guest_kit import Start, over_ssh, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from tests.vmbackend.test_hold_machine import in_guest
from vmbackend.driver import Boot, Workload, WorkloadRestart
from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.kit import Kit
from vmbackend.guest.session import IMAGE_USER
from vmbackend.guest.ssh import SSHGuestSession

__all__ = ["kit", "shell_image", "start"]
pytestmark = pytest.mark.vm

LIMITS = (
    "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range /proc/sys/vm/max_map_count;"
    " ulimit -Sn; ulimit -Hn; cat /proc/self/limits"
)
WHO = 'echo "$(id -u):$(id -g) $PWD $HOME $GREETING $HOSTNAME"'
AS_THE_IMAGE = "1000:1000 /app /home/dev hello guest-1"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a folder of files, and WORKDIR /app."""
    folder = tmp_path_factory.mktemp("app")
    root = harness.busybox_root(folder / "root")
    inner = root / "app/old" / "/".join(["a" * 200, "b" * 200]) / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("of the image\n")
    return harness.make_squashfs(root, folder / "base")


@pytest.fixture(scope="module")
def of_dev(tmp_path_factory: pytest.TempPathFactory, kit: Kit, image: Path) -> Iterator[harness.Machine]:
    """A machine whose image has a user and a folder, with a main program and workloads that say what they run as."""
    boot = Boot(
        hostname="guest-1",
        env={"GREETING": "hello"},
        user="dev",
        working_dir="/app",
        entrypoint=("sh", "-c", f"{WHO}; {LIMITS}; echo by name > /dev/stdout; sleep 1000"),
        workloads=(
            Workload("same", ("sh", "-c", f"{WHO}; {LIMITS}; sleep 1000"), restart=WorkloadRestart.NEVER),
            Workload("root", ("sh", "-c", f"{WHO}; sleep 1000"), user="root", restart=WorkloadRestart.NEVER),
        ),
        wait_for_init=True,
    )
    machine = harness.start(tmp_path_factory.mktemp("of-dev") / "m", kit, image, boot)
    yield wait_ready(machine)
    machine.close()


def assert_limits(text: str) -> None:
    assert "0\n0\t2147483647\n262144\n65536\n524288\n" in text
    found = {line[:26].strip(): line[26:].split()[:2] for line in text.splitlines()}
    assert found["Max processes"] == ["unlimited", "unlimited"]
    assert found["Max locked memory"] == [str(8 << 20)] * 2


def test_a_command_runs_as_the_image_says(of_dev: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        said = (await guest.execute(f"{WHO}; {LIMITS}", user=IMAGE_USER)).stdout.decode()
        assert said.splitlines()[0] == AS_THE_IMAGE
        assert_limits(said)
        for options, wanted in (
            ({"user": "root"}, "0:0 /app /root hello guest-1"),
            ({"user": "1000"}, AS_THE_IMAGE),
            ({"user": "4321"}, "4321:0 /app / hello guest-1"),
            ({"user": "4321:77"}, "4321:77 /app / hello guest-1"),
            ({"user": "dev:extra"}, "1000:1005 /app /home/dev hello guest-1"),
            ({"user": IMAGE_USER, "working_dir": "/etc"}, "1000:1000 /etc /home/dev hello guest-1"),
            ({}, "0:0 /root /root hello guest-1"),  # the platform's own
        ):
            assert (await guest.execute(WHO, **options)).stdout.decode() == f"{wanted}\n"  # type: ignore[arg-type]
        with pytest.raises(GuestCommandInvalid, match="no such user: nobody-here"):
            await guest.execute(WHO, user="nobody-here")
        opened = await guest.execute("echo by name > /dev/stdout", user=IMAGE_USER)
        assert opened.stdout == b"by name\n", "its output is its user's, as containers have it"

    in_guest(of_dev, work)


def test_held_commands_and_terminals_run_as_the_image_says(of_dev: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        said = (await guest.execute_held(f"{WHO}; {LIMITS}")).stdout.decode()
        assert said.splitlines()[0] == AS_THE_IMAGE
        assert_limits(said)
        assert (await guest.execute_held(WHO, user="root")).stdout == b"0:0 /app /root hello guest-1\n"
        client = guest.open_hold()
        script = f"{WHO}; {LIMITS}; echo hi > $(readlink /proc/self/fd/0); echo END"
        terminal = await client.create_terminal(["sh", "-c", script])
        seen = (await read_until(terminal, b"END\r\n")).decode().replace("\r\n", "\n")
        assert seen.startswith(f"{AS_THE_IMAGE}\n")
        assert "hi\n" in seen, "a user may open its own terminal by name"
        assert_limits(seen)
        await client.close()

    in_guest(of_dev, work)


def test_main_program_and_workloads_run_as_the_image_says(of_dev: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        for name, wanted in (("cmd", AS_THE_IMAGE), ("same", AS_THE_IMAGE), ("root", "0:0 /app /root hello guest-1")):
            for _ in range(200):
                said = (await guest.execute(harness.log_text(name))).stdout.decode()
                if said.count("\n") >= (1 if name == "root" else 20):
                    break
                await asyncio.sleep(0.1)
            assert said.splitlines()[0] == wanted
            if name != "root":
                assert_limits(said)

    in_guest(of_dev, work)


def test_every_user_may_listen_on_a_port_below_1024(of_dev: harness.Machine) -> None:
    async def work(guest: SSHGuestSession) -> None:
        command = "nc -l -p 80 -e /bin/echo web & sleep 1; nc 127.0.0.1 80 < /dev/null"
        assert (await guest.execute(command, user="dev")).stdout == b"web\n"

    in_guest(of_dev, work)


def test_without_a_working_directory_of_the_image_commands_start_at_home(start: Start) -> None:
    machine = wait_ready(start(user="dev"))

    async def work(guest: SSHGuestSession) -> None:
        assert (await guest.execute("pwd", user=IMAGE_USER)).stdout == b"/home/dev\n"
        assert (await guest.execute("pwd", user="root")).stdout == b"/root\n"
        assert (await guest.execute_held("pwd")).stdout == b"/home/dev\n"

    in_guest(machine, work)


def test_a_working_directory_is_entered_behind_a_folder_that_its_user_may_not_search(start: Start) -> None:
    """As containers have it, for the main program, workloads, commands and terminals alike."""
    say = ("sh", "-c", "echo $(id -u) $(pwd); sleep 1000")
    folder = {"working_dir": "/root/app", "directories": ("/root/app",)}
    workload = Workload("w", say, restart=WorkloadRestart.NEVER)
    machine = wait_ready(start(user="1000", **folder, entrypoint=say, workloads=(workload,), wait_for_init=True))
    for name in ("cmd", "w"):
        wait_for_output(machine, harness.log_text(name), "1000 /root/app\n")

    async def work(guest: SSHGuestSession) -> None:
        where = "echo $(id -u) $(pwd)"
        assert (await guest.execute(where, user=IMAGE_USER)).stdout == b"1000 /root/app\n"
        assert (await guest.execute(where, user="dev", working_dir="/root")).stdout == b"1000 /root\n"
        assert (await guest.execute_held(where)).stdout == b"1000 /root/app\n"
        with pytest.raises(GuestCommandInvalid, match="cannot enter /root/none: No such"):
            await guest.execute(where, user=IMAGE_USER, working_dir="/root/none")

    in_guest(machine, work)


def test_links_in_a_folder_for_everybody_lead_nobody_astray(of_dev: harness.Machine) -> None:
    """Neither to another user's file by a hard link, nor root by a symbolic one."""

    async def work(guest: SSHGuestSession) -> None:
        await guest.execute("echo of root > /tmp/file", user="root")
        link = "/run/kit/bin/busybox ln"
        assert (await guest.execute(f"{link} /tmp/file /tmp/hard", user="dev")).exit_code == 1
        assert (await guest.execute(f"{link} -s /tmp/file /tmp/soft && cat /tmp/file", user="dev")).exit_code == 0
        assert (await guest.execute("cat /tmp/soft", user="root")).exit_code == 1

    in_guest(of_dev, work)


def test_folders_of_the_image_are_renamed_and_files_keep_their_inode_numbers(
    tmp_path: Path, kit: Kit, image: Path
) -> None:
    """Also where the folder's path is longer than what the kernel follows by default, and after a restart."""
    inner = "/".join(["a" * 200, "b" * 200])

    async def rename(connection: asyncssh.SSHClientConnection) -> None:
        async with connection.start_sftp_client() as sftp:
            await sftp.posix_rename("/app/old", "/etc/new")
            await sftp.posix_rename(f"/etc/new/{inner}/inner", "/app/moved")

    def inode(machine: harness.Machine, path: str) -> bytes:
        found: list[bytes] = []

        async def work(guest: SSHGuestSession) -> None:
            found.append((await guest.execute(["stat", "-c", "%i %d", path])).stdout)

        in_guest(machine, work)
        return found[0]

    async def write(guest: SSHGuestSession) -> None:
        assert (await guest.execute("echo more >> /app/moved/file")).exit_code == 0

    async def read(guest: SSHGuestSession) -> None:
        assert (await guest.execute("cat /app/moved/file; ls /app")).stdout == b"of the image\nmore\nmoved\n"

    machine = wait_ready(harness.start(tmp_path / "m", kit, image, Boot(hostname="guest-1")))
    try:
        over_ssh(machine, rename)
        before = inode(machine, "/app/moved/file")
        in_guest(machine, write)
        assert inode(machine, "/app/moved/file") == before
        machine.qmp("system_powerdown")
        machine.wait_off()
        machine.close()
        machine = wait_ready(harness.start(tmp_path / "m", kit, image, Boot(hostname="guest-1")))
        in_guest(machine, read)
    finally:
        machine.close()
