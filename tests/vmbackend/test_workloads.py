"""Workloads, the time of `ready` and logs, in real machines."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, empty_image, run, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from vmbackend.driver import Boot, Workload, WorkloadRestart
from vmbackend.guest.kit import Kit

__all__ = ["empty_image", "kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
# No loop of a shell: what starts a program ten times a second costs an emulated machine a third of a core.
FOREVER = "exec sleep 9999"
UNTIL_TRAPPED = "sleep 9999 & wait"  # a trap kills the program, which is `$!`
HANGING: dict[str, Any] = {"cmd": ("sleep", "9"), "workloads": (Workload("web", ("sleep", "9")),)}
DEEP_LOGS = "/var/log/workspace" + "/d" * 40


def script(name: str, text: str, **options: object) -> Workload:
    return Workload(name, ("sh", "-c", text), **options)


def ends_with(code: int) -> str:
    return f"trap 'kill $!; echo bye; exit {code}' TERM"


@pytest.fixture(scope="session")
def stuck_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing can be started in it: every user lookup blocks forever."""
    folder = tmp_path_factory.mktemp("stuck")
    root = harness.busybox_root(folder / "root")
    (root / "etc/passwd").unlink()
    os.mkfifo(root / "etc/passwd")
    return harness.make_squashfs(root, folder / "base")


@pytest.fixture(scope="module", autouse=True)
def waiting(kit: Kit, stuck_image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Machine]:
    """A machine whose start hangs for half a minute, in which the other tests of this file run."""
    boot = Boot(hostname="guest-1", wait_for_init=True, **HANGING)
    machine = harness.start(tmp_path_factory.mktemp("waiting") / "m", kit, stuck_image, boot)
    yield machine
    machine.close()


STAMP = "/run/kit/bin/busybox cut -d. -f1 /proc/uptime >> /root/starts; exit 1"


@pytest.fixture(scope="module")
def several_users(tmp_path_factory: pytest.TempPathFactory, kit: Kit, shell_image: Path) -> Iterator[harness.Machine]:
    """A machine whose programs run as several users and then rest; one is started again."""
    text = "echo $A $B $HOSTNAME; id -u; pwd; echo bad >&2; exec sleep 999"
    boot = Boot(
        hostname="guest-1",
        cmd=("sh", "-c", "echo bad > /dev/stderr; exec sleep 999"),
        env={"A": "machine", "B": "machine"},
        workloads=(
            script("own", text, env={"B": "own"}, working_dir="/tmp", user="dev"),
            script("plain.1-x_", text),
            script("slow", STAMP, restart_delay=4, max_restarts=1, user="root"),
        ),
        user="12:34",
        working_dir="/home",
    )
    machine = harness.start(tmp_path_factory.mktemp("users") / "m", kit, shell_image, boot)
    yield wait_ready(machine)
    machine.close()


def test_programs_get_their_environment_directory_and_user_and_may_open_their_standard_error(
    several_users: harness.Machine,
) -> None:
    machine = several_users
    wait_for_output(machine, harness.log_text("cmd"), "bad\n")
    wait_for_output(machine, harness.log_text("own"), "machine own guest-1\n1000\n/tmp\nbad\n")
    wait_for_output(machine, harness.log_text("plain.1-x_"), "machine machine guest-1\n12\n/home\nbad\n")
    assert "bad" not in machine.console()


def counting(name: str, code: int, policy: WorkloadRestart, limit: int = 0) -> Workload:
    """One that ends again and again, but not for ever: the machine is used by other tests."""
    runs = f"$(/run/kit/bin/busybox wc -l < /root/{name})"
    text = f"echo x >> /root/{name}; [ {runs} -lt 8 ] || {FOREVER}; exit {code}"
    return script(name, text, restart=policy, max_restarts=limit, restart_delay=0)


CANNOT_START = (
    Workload("program", ("/not/there",), restart_delay=1),
    Workload("user", ("sh",), user="nobody-here", restart_delay=1),
    Workload("directory", ("sh",), working_dir="/not/there", restart=WorkloadRestart.NEVER),
    script("good", "echo here; exit 5"),
)
LINES = "while :; do echo line; sleep 1; done"
SEVERAL = (
    # For test_each_restart_policy.
    counting("never", 1, WorkloadRestart.NEVER),
    counting("well", 0, WorkloadRestart.ON_FAILURE),
    counting("failing", 1, WorkloadRestart.ON_FAILURE, 2),
    counting("always", 0, WorkloadRestart.ALWAYS, 3),
    counting("endless", 3, WorkloadRestart.ALWAYS),
    script("killed", "echo x >> /root/killed; kill -9 $$", restart_delay=0, max_restarts=1),
    *CANNOT_START,
    # For test_a_log_path_may_be_a_device_a_directory_or_a_missing_folder.
    script("nothing", LINES, log_path="/dev/null"),
    script("folder", f"echo here > /root/ran; {LINES}", log_path="/home"),
    script("removed", LINES, log_path="/root/deep/er/log"),
)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, kit: Kit, shell_image: Path) -> Iterator[harness.Machine]:
    """One machine with a main program and the workloads of several tests: its boot takes longer than each of them."""
    boot = Boot(hostname="guest-1", cmd=("sh", "-c", FOREVER), workloads=SEVERAL)
    machine = harness.start(tmp_path_factory.mktemp("several") / "m", kit, shell_image, boot)
    yield wait_ready(machine)
    machine.close()


def test_each_restart_policy(several: harness.Machine) -> None:
    names = ("never", "well", "failing", "always", "killed")
    command = "; ".join(f"cat /root/{name} | wc -l" for name in names).replace("wc", "/run/kit/bin/busybox wc")
    wait_for_output(several, command, "1\n1\n3\n4\n2\n")
    time.sleep(3)
    assert run(several, command)[0][1] == "1\n1\n3\n4\n2\n"
    assert 4 < len(run(several, "cat /root/endless")[0][1].split()) <= 8


def test_a_restart_waits_its_delay(several_users: harness.Machine) -> None:
    wait_for_output(several_users, "/run/kit/bin/busybox wc -l < /root/starts", "2\n")
    first, second = (int(found) for found in run(several_users, "cat /root/starts")[0][1].split())
    assert 4 <= second - first <= 6


@pytest.mark.parametrize("wait", [False, True])
def test_workloads_that_cannot_start_or_exit_do_not_affect_the_machine(
    start: Start, wait: bool, request: pytest.FixtureRequest
) -> None:
    if wait:
        machine = wait_ready(start(cmd=("sh", "-c", FOREVER), wait_for_init=True, workloads=CANNOT_START))
    else:
        machine = request.getfixturevalue("several")
    assert seconds_until_ready(machine) < 29  # not until the start counts as hanging
    wait_for_output(machine, f"{harness.log_text('good')} | /run/kit/bin/busybox head -n 1", "here\n")
    first_two = "/run/kit/bin/busybox head -n 2"
    for name, reason in (
        ("program", "cannot start /not/there: No such file or directory"),
        ("user", "no such user: nobody-here"),
    ):
        wait_for_output(machine, f"{harness.log_text(name)} | {first_two}", f"guest: {reason}\n" * 2)
    assert run(machine, harness.log_text("directory"))[0][1] == (
        "guest: cannot enter /not/there: No such file or directory\n"
    )
    with pytest.raises(TimeoutError):  # no exit was reported
        machine.line(0.1)


def test_in_an_empty_image_workloads_fail_and_the_machine_keeps_running(start: Start, empty_image: Path) -> None:
    machine = wait_ready(start(empty_image, workloads=(Workload("web", ("web",)),), wait_for_init=True))
    wait_for_output(
        machine,
        f"{harness.log_text('web')} | /run/kit/bin/busybox head -n 1",
        "guest: cannot start web: No such file or directory\n",
    )


def logged(machine: harness.Machine, name: str) -> str:
    """What a machine that is off has written to a log."""
    return harness.text_of_records(machine.file_on_disk(f"/var/log/workspace/{name}.log"))


def test_workloads_get_sigterm_at_the_power_button_and_an_entrypoint_that_waits_for_its_restart_delays_nothing(
    start: Start,
) -> None:
    workloads = (
        script("polite", f"{ends_with(0)}; echo up; {UNTIL_TRAPPED}"),
        script("polite-too", f"{ends_with(3)}; echo up; {UNTIL_TRAPPED}", restart=WorkloadRestart.ALWAYS),
        script("resting", "exit 1", restart_delay=600),
    )
    machine = wait_ready(start(entrypoint=("sh", "-c", "exit 1"), workloads=workloads, wait_for_init=True))
    wait_for_output(machine, harness.log_text("polite", "polite-too"), "up\nup\n")
    time.sleep(1)
    machine.qmp("system_powerdown")
    assert "programs" not in machine.wait_off()
    assert [logged(machine, name) for name in ("polite", "polite-too")] == ["up\nbye\n"] * 2


def test_a_workload_that_ignores_sigterm_is_killed(start: Start) -> None:
    machine = wait_ready(start(workloads=(script("deaf", f"trap '' TERM; echo up; {FOREVER}"),), wait_for_init=True))
    wait_for_output(machine, harness.log_text("deaf"), "up\n")
    machine.qmp("system_powerdown")
    assert "programs" in machine.wait_off()


def test_the_exit_of_the_main_process_ends_the_workloads(start: Start) -> None:
    workload = script("other", f"{ends_with(0)}; : > /root/up; {UNTIL_TRAPPED}")
    main = "while [ ! -e /root/up ]; do sleep 0.1; done; sleep 1; exit 4"
    machine = wait_ready(start(cmd=("sh", "-c", main), workloads=(workload,)))
    assert machine.line() == "exit 4 0"
    assert "programs" not in machine.wait_off()
    assert logged(machine, "other") == "bye\n"


def test_logs_of_a_chatty_workload_are_rotated(start: Start) -> None:
    flood = "for n in 1 2 3 4 5 6 7; do head -c 700000 /dev/zero; done; echo end; exec sleep 999"
    machine = wait_ready(
        start(workloads=(script("own", flood, log_path="/srv/logs/it.txt"), script("kits", flood)), keep_logs=True)
    )
    for path in ("/srv/logs/it.txt", "/var/log/workspace/kits.log"):
        wait_for_output(machine, f"/run/kit/bin/busybox tail -c 4 {path}", "end\n")
        sizes = run(machine, f"stat -c %s {path}*")[0][1].split()
        assert len(sizes) == 4
        assert all(int(size) <= 1_000_000 for size in sizes)
        assert sum(int(size) for size in sizes) > 2_000_000


def test_a_log_path_may_be_a_device_a_directory_or_a_missing_folder(several: harness.Machine) -> None:
    wait_for_output(several, "/run/kit/bin/busybox head -n 1 /root/deep/er/log", "line\n")
    run(several, "rm -rf /root/deep")
    wait_for_output(several, "/run/kit/bin/busybox head -n 1 /root/deep/er/log", "line\n")
    assert run(several, "stat -c %F /dev/null; cat /root/ran")[0][1] == "character special file\nhere\n"


def test_ready_waits_for_the_programs_with_wait_for_init(start: Start) -> None:
    workloads = tuple(script(f"w{number}", "exec sleep 4242") for number in range(20))
    machine = wait_ready(start(entrypoint=("sleep", "4242"), workloads=workloads, wait_for_init=True))
    listing = run(machine, "for f in /proc/[0-9]*/cmdline; do cat $f; echo; done 2>/dev/null")[0][1]
    assert listing.count("sleep\x004242") == 21


def test_the_exit_of_a_short_program_is_reported_after_ready(start: Start) -> None:
    machine = start(cmd=("sh", "-c", "exit 6"), wait_for_init=True)
    assert [machine.line(), machine.line()] == ["ready", "exit 6 0"]
    assert "programs" not in machine.wait_off()


def test_a_hanging_start_delays_ready_for_30_seconds_with_wait_for_init_only(
    start: Start, stuck_image: Path, waiting: harness.Machine
) -> None:
    assert seconds_until_ready(wait_ready(waiting)) >= 29
    assert seconds_until_ready(wait_ready(start(stuck_image, **HANGING))) < 29


def seconds_until_ready(machine: harness.Machine) -> float:
    """From the start of the services on, by the guest's clock."""
    found = None
    deadline = time.monotonic() + harness.HANG_SECONDS
    while not found and time.monotonic() < deadline:
        found = re.search(
            r"\[ *([0-9.]+)\] kit: starting services.*\[ *([0-9.]+)\] kit: ready", machine.console(), re.S
        )
        time.sleep(0.1)
    assert found, machine.console()
    return float(found[2]) - float(found[1])


def test_logs_of_earlier_starts_stay_or_go(start: Start) -> None:
    boot = {
        "cmd": ("sh", "-c", f"echo main; {FOREVER}"),
        "workloads": (script("kits", "echo one; exec sleep 999"), script("own", "echo one", log_path="/root/own.log")),
    }
    for keep, wanted in ((True, "main\none\none\n"), (True, "main\nmain\none\none\none\none\n")):
        machine = wait_ready(start(keep_logs=keep, **boot))
        wait_for_output(machine, f"{harness.log_text('cmd', 'kits')} /root/own.log", wanted)
        run(machine, f"mkdir -p {DEEP_LOGS}; echo old > {DEEP_LOGS}/old; echo old > /var/log/workspace/boring")
        run(machine, "echo old > /root/own.log.2; /run/kit/bin/busybox sync")
        machine.qmp("system_powerdown")
        machine.wait_off()
        machine.close()
    machine = wait_ready(start(keep_logs=False, **boot))
    wait_for_output(machine, f"{harness.log_text('cmd', 'kits')} /root/own.log", "main\none\none\n")
    assert run(machine, "ls /root; ls /var/log/workspace")[0][1] == "own.log\ncmd.log\nkits.log\n"


def test_each_line_of_a_log_is_a_record_with_time_and_stream(start: Start) -> None:
    script = "printf '%s' 'Name: '; sleep 1.5; echo bob; echo bad >&2; printf no >&2; exit 0"
    begun = time.time()
    machine = start(cmd=("sh", "-c", script))
    assert [machine.line(), machine.line()] == ["ready", "exit 0 0"]
    machine.wait_off()
    written = machine.file_on_disk("/var/log/workspace/cmd.log")
    records = [line.split(" ", 3) for line in written.splitlines()]
    assert [record[1:] for record in records if record[1] == "stdout"] == [
        ["stdout", "P", "Name: "],
        ["stdout", "F", "bob"],
    ]
    assert [record[1:] for record in records if record[1] == "stderr"] == [
        ["stderr", "F", "bad"],
        ["stderr", "P", "no"],
    ]
    times = [record[0] for record in records]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", found) for found in times)
    assert times == sorted(times)
    first = datetime.fromisoformat(f"{times[0][:23]}+00:00").timestamp()
    assert begun - 2 < first < time.time() + 2
