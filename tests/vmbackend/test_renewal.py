"""Renewal of a machine in which programs ran, as after its memory was loaded, in machines of plain QEMU."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.cache import DEBIAN_KIT_DIR, use_kit_dir
from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import Start, run, shell_image, wait_for_output
from tests.vmbackend.test_guest_ssh import kit, start, wait_ready
from tests.vmbackend.told_guest import config_for, expected, tell
from vmbackend.driver import Boot, Workload
from vmbackend.guest.kit import build_kit
from vmbackend.guest.load_message import LoadMessage, MessageKind, renew_message

__all__ = ["kit", "shell_image", "start"]
pytestmark = pytest.mark.vm
# QEMU's network in user mode knows this one alone.
MAC, UUID = "52:54:00:12:34:56", "0d5c4d5e-7a4f-4d55-9d33-5b7c4cb7d0a1"
COUNT = "n=0; while :; do n=$((n + 1)); echo $n > /dev/shm/next; mv /dev/shm/next /dev/shm/count; done"
IDS = "cat /proc/sys/kernel/random/boot_id /run/kit/generation /etc/machine-id; echo; cat /etc/hostname"
NEW = Boot(hostname="copy", env={"OWN": "copy"})


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with a machine id."""
    folder = tmp_path_factory.mktemp("ids")
    root = harness.busybox_root(folder / "root")
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    return harness.make_squashfs(root, folder / "base")


@pytest.fixture
def counting(start: Start, image: Path) -> harness.Machine:
    workloads = (Workload("count", ("sh", "-c", COUNT)),)
    return wait_ready(start(image, env={"OWN": "parent"}, workloads=workloads, wait_for_init=True))


def renewal(machine: harness.Machine, *, kept: bool = False) -> LoadMessage:
    return renew_message(uuid=UUID, mac=MAC, config=config_for(machine, NEW), kept=kept)


def count(machine: harness.Machine) -> int:
    return int(run(machine, "cat /dev/shm/count")[0][1])


@pytest.mark.parametrize("kept", [False, True])
def test_a_renewed_machine_has_other_identities_and_its_programs_go_on(counting: harness.Machine, kept: bool) -> None:
    """Commands have the new environment; running programs keep theirs. With `kept` it is the machine that it was."""
    before = run(counting, IDS)[0][1].split()
    counted, message = count(counting), renewal(counting, kept=kept)
    answer = tell(counting, message)
    assert answer[:-1] == expected(message), counting.console()
    assert abs(int(answer[-1]) - time.time_ns()) < 60 * 10**9
    assert counting.line() == "ready"
    after = run(counting, IDS)[0][1].split()
    assert after[0] != before[0]
    assert after[1] == message.generation
    assert (after[2] == before[2]) is kept
    assert after[3] == "copy"
    assert run(counting, "cat /sys/class/net/eth0/address; echo $OWN")[0][1].split() == [MAC, "copy"]
    assert count(counting) > counted
    again = renewal(counting, kept=kept)
    assert tell(counting, again)[:-1] == expected(again)
    assert run(counting, IDS)[0][1].split()[0] not in (after[0], before[0])


def test_a_program_does_not_run_until_everything_is_renewed(counting: harness.Machine) -> None:
    """Here one item fails: its programs stay frozen, whatever the host does with the machine then."""
    whole = renewal(counting)
    facts = {key: value for key, value in whole.facts.items() if key != "uuid"}
    answer = tell(counting, LoadMessage(MessageKind.RENEW, whole.config, facts))
    assert answer == ["failed", "identity", "Protocol", "error"]
    one = count(counting)
    time.sleep(1)
    assert count(counting) == one


def test_connections_of_before_end_and_what_listens_goes_on(start: Start, image: Path) -> None:
    """Programs that wait for a line of a client that is not theirs any more get an error at once."""
    texts = {
        "reads": f"sleep 9999 | {{ nc -l -p {harness.WEB_PORT} > /dev/shm/got; echo ended > /dev/shm/ended; }}",
        "listens": "sleep 9999 | nc -l -p 90 > /dev/shm/heard",
    }
    workloads = tuple(Workload(name, ("sh", "-c", f"{text}; exec sleep 9999")) for name, text in texts.items())
    machine = wait_ready(start(image, workloads=workloads, wait_for_init=True))

    listening = "/run/kit/bin/busybox grep -c ' 0A ' /proc/net/tcp6"
    wait_for_output(machine, listening, "3\n")

    async def work() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", machine.web_port)
        writer.write(b"before\n")
        await writer.drain()
        await asyncio.to_thread(wait_for_output, machine, "cat /dev/shm/got", "before\n")
        message = renewal(machine)
        answer = await asyncio.to_thread(tell, machine, message)
        assert answer[:-1] == expected(message)
        writer.close()

    asyncio.run(asyncio.wait_for(work(), harness.HANG_SECONDS))
    assert run(machine, "sleep 5; cat /dev/shm/ended")[0][1] == "ended\n"
    run(machine, "echo hello | nc 127.0.0.1 90 & sleep 1")
    wait_for_output(machine, "cat /dev/shm/heard", "hello\n")


def test_debians_kernel_has_each_call_that_a_renewal_needs(tmp_path: Path, image: Path) -> None:
    """Also for a second renewal."""
    kit = build_kit(use_kit_dir(DEBIAN_KIT_DIR), lambda *_: None)
    machine = harness.start(tmp_path / "m", kit, image, Boot(hostname="parent"))
    try:
        wait_ready(machine)
        seen = [run(machine, IDS)[0][1].split()[:3]]
        for _ in range(2):
            message = renewal(machine)
            assert tell(machine, message)[:-1] == expected(message), machine.console()
            assert machine.line() == "ready"
            seen.append(run(machine, IDS)[0][1].split()[:3])
    finally:
        machine.close()
    assert len({each for ids in seen for each in ids}) == 9
